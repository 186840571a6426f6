"""Cline: values for its settings panel; its storage is private.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    return Setup(
        steps=(
            "Open Cline's settings (the gear).",
            "API Provider: OpenAI Compatible",
            f"Base URL: {target.v1}",
            f"API Key: {target.secret}",
            f"Model ID: {target.model}",
            f"Model Configuration: Context Window Size {target.context}, Max Output Tokens {target.output}"
            + (", Supports Images" if target.sees else ""),
        ),
        notes=(
            f"Command line: `cline auth -p openai-compatible -b {target.v1} -m {target.model} -k KEY`, then `cline`.",
            "Cline waits at most 300 s between bytes. sparkdash sends some every 5 s while a model loads.",
        ),
    )


RECIPE = Recipe(
    "cline", "Cline", ClientProtocol.CHAT, _setup, "Cline 3.0.65; docs.cline.bot/provider-config/openai-compatible"
)
