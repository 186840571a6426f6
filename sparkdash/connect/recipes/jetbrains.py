"""JetBrains AI Assistant: its settings dialog; keys are in the IDE's own safe.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    return Setup(
        steps=(
            "Settings | Tools | AI Assistant | Providers & API keys",
            "Third-party AI providers, Provider: OpenAI-compatible",
            f"URL: {target.v1}",
            f"API Key: {target.secret}",
            "Tool calling: on. Test Connection, then Apply.",
            f"In the AI chat choose the model {target.model}.",
        ),
        notes=("Its time-outs are not documented; the first request after a swap is the one to watch.",),
    )


RECIPE = Recipe(
    "jetbrains",
    "JetBrains AI Assistant",
    ClientProtocol.CHAT,
    _setup,
    "jetbrains.com/help/ai-assistant/use-custom-models (2026); not run here",
)
