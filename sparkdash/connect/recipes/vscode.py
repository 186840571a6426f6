"""VS Code: Copilot Chat's custom endpoint (1.122 and later)."""

from __future__ import annotations

from sparkdash.connect.gateway_target import GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, ConfigFile, FileFormat, Recipe, Setup


def _setup(place: GatewayTarget) -> Setup:
    model = {
        "id": place.model,
        "name": place.model,
        "url": f"{place.v1}/chat/completions",
        "toolCalling": True,
        "vision": place.sees,
        "maxInputTokens": place.context - place.output,
        "maxOutputTokens": place.output,
    }
    group = {
        "name": "sparkdash",
        "vendor": "customendpoint",
        **({"apiKey": "${input:sparkdashKey}"} if place.key else {}),
        "apiType": "chat-completions",
        "models": [model],
    }
    return Setup(
        files=(ConfigFile("~/.config/Code/User/chatLanguageModels.json", FileFormat.JSON, [group]),),
        steps=(
            *(
                (
                    "Chat: Manage Language Models, the gear of sparkdash: enter the key; VS Code keeps it in its own safe.",
                )
                if place.key
                else ()
            ),
            "For titles and commit messages: set chat.byokUtilityModelDefault to the main agent's model, so that they never swap.",
        ),
        notes=(
            "It reads no model list: a second model is a second entry under `models`.",
            *(() if place.sees else ("vision false: no weights on this box say that the model reads pictures.",)),
            "Its own Ollama provider works as well, with the address " + place.root + ".",
        ),
    )


RECIPE = Recipe(
    "vscode",
    "VS Code (Copilot Chat)",
    ClientProtocol.CHAT,
    _setup,
    "code.visualstudio.com/docs, language models, 2026-07; not run here",
)
