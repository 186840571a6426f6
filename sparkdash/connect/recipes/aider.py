"""aider: litellm inside; reads its YAML from the home folder.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import LONG_S, GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, ConfigFile, FileFormat, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    model = f"openai/{target.model}"
    return Setup(
        files=(
            ConfigFile(
                "~/.aider.conf.yml",
                FileFormat.YAML,
                {
                    "model": model,
                    "weak-model": model,
                    "openai-api-base": target.v1,
                    "openai-api-key": target.secret,
                    "timeout": LONG_S,
                },
            ),
            ConfigFile(
                "~/.aider.model.metadata.json",
                FileFormat.JSON,
                {
                    model: {
                        "max_input_tokens": target.context,
                        "max_output_tokens": target.output,
                        "max_tokens": target.output,
                        "litellm_provider": "openai",
                        "mode": "chat",
                        **({"supports_vision": True} if target.sees else {}),
                    }
                },
            ),
        ),
        run="aider",
        notes=(
            "Without `timeout` aider gives up after 600 s of silence.",
            "`weak-model` keeps commit messages on the same model, so they never cause a swap.",
        ),
    )


RECIPE = Recipe(
    "aider", "aider", ClientProtocol.CHAT, _setup, "aider 0.86.2; aider.chat/docs/config/options, adv-model-settings"
)
