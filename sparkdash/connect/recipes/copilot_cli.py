"""GitHub Copilot CLI: environment variables with which it needs no login.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    return Setup(
        env={
            "COPILOT_PROVIDER_BASE_URL": target.v1,
            "COPILOT_PROVIDER_API_KEY": target.secret,
            "COPILOT_MODEL": target.model,
            "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": str(target.context - target.output),
            "COPILOT_PROVIDER_MAX_OUTPUT_TOKENS": str(target.output),
            "COPILOT_OFFLINE": "true",
        },
        run="copilot",
        notes=(
            "COPILOT_OFFLINE switches login, telemetry and updates off; only sparkdash is asked.",
            "Copilot waits 600 s for a first byte. sparkdash sends some every 5 s while a model loads.",
        ),
    )


RECIPE = Recipe(
    "copilot-cli",
    "GitHub Copilot CLI",
    ClientProtocol.CHAT,
    _setup,
    "Copilot CLI 1.0.102, run against sparkdash; its `copilot help providers`",
)
