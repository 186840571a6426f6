"""VS Code: Copilot Chat's custom endpoint (1.122 and later).

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, ConfigFile, FileFormat, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    model = {
        "id": target.model,
        "name": target.model,
        "url": f"{target.v1}/chat/completions",
        "toolCalling": True,
        "vision": target.sees,
        "maxInputTokens": target.context - target.output,
        "maxOutputTokens": target.output,
    }
    group = {
        "name": "sparkdash",
        "vendor": "customendpoint",
        **({"apiKey": "${input:sparkdashKey}"} if target.key else {}),
        "apiType": "chat-completions",
        "models": [model],
    }
    return Setup(
        files=(ConfigFile("~/.config/Code/User/chatLanguageModels.json", FileFormat.JSON, [group]),),
        steps=(
            *(
                ("Chat: Manage Language Models, the gear of sparkdash: enter the key. VS Code stores it safely.",)
                if target.key
                else ()
            ),
            "Set chat.byokUtilityModelDefault to the main agent's model, so that titles and commits never swap.",
        ),
        notes=(
            "VS Code reads no model list. For a second model add a second entry under `models`.",
            *(() if target.sees else ("vision false: no weights on this box say that the model reads pictures.",)),
            f"The built-in Ollama provider works as well, with the address {target.root}.",
        ),
    )


RECIPE = Recipe(
    "vscode",
    "VS Code (Copilot Chat)",
    ClientProtocol.CHAT,
    _setup,
    "code.visualstudio.com/docs, language models, 2026-07; not run here",
)
