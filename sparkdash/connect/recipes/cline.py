"""Cline: its settings panel; what it stores is not for others to write."""

from __future__ import annotations

from sparkdash.connect.gateway_target import GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, Recipe, Setup


def _setup(place: GatewayTarget) -> Setup:
    return Setup(
        steps=(
            "Open Cline's settings (the gear).",
            "API Provider: OpenAI Compatible",
            f"Base URL: {place.v1}",
            f"API Key: {place.secret}",
            f"Model ID: {place.model}",
            f"Model Configuration: Context Window Size {place.context}, Max Output Tokens {place.output}"
            + (", Supports Images" if place.sees else ""),
        ),
        notes=(
            f"Its command line: `cline auth -p openai-compatible -b {place.v1} -m {place.model} -k KEY`, then `cline`.",
            "It waits 300 s between bytes, which no setting lifts; sparkdash sends some every 5 s while a model loads.",
        ),
    )


RECIPE = Recipe(
    "cline", "Cline", ClientProtocol.CHAT, _setup, "Cline 3.0.65; docs.cline.bot/provider-config/openai-compatible"
)
