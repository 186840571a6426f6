"""pi: a provider in its models.json, and its idle time-out.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import LONG_MS, GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, ConfigFile, FileFormat, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    eyes = {"input": ["text", "image"]} if target.sees else {}
    provider = {
        "baseUrl": target.v1,
        "api": "openai-completions",
        "apiKey": target.secret,
        "compat": {"supportsDeveloperRole": False},
        "models": [{"id": target.model, **eyes, "contextWindow": target.context, "maxTokens": target.output}],
    }
    patience = {"httpIdleTimeoutMs": LONG_MS, "retry": {"provider": {"timeoutMs": LONG_MS}}}
    return Setup(
        files=(
            ConfigFile("~/.pi/agent/models.json", FileFormat.JSON, {"providers": {"sparkdash": provider}}, same="id"),
            ConfigFile("~/.pi/agent/settings.json", FileFormat.JSON, patience),
        ),
        run=f"pi --provider sparkdash --model {target.model}",
        notes=("httpIdleTimeoutMs: the default is 300 s.",),
    )


RECIPE = Recipe(
    "pi", "pi", ClientProtocol.CHAT, _setup, "pi 0.73.1; packages/coding-agent/docs/models.md and settings.md"
)
