"""Continue: one model more in its config.yaml.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import LONG_MS, GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, ConfigFile, FileFormat, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    model = {
        "name": f"sparkdash {target.model}",
        "provider": "openai",
        "model": target.model,
        "apiBase": target.v1,
        "apiKey": target.secret,
        "roles": ["chat", "edit", "apply"],
        "capabilities": ["tool_use", *(["image_input"] if target.sees else [])],
        "defaultCompletionOptions": {"contextLength": target.context, "maxTokens": target.output},
        "requestOptions": {"timeout": LONG_MS},
    }
    head = {"name": "Local", "version": "1.0.0", "schema": "v1"}
    return Setup(
        files=(ConfigFile("~/.continue/config.yaml", FileFormat.YAML, {"models": [model]}, seed=head),),
        notes=(
            "requestOptions.timeout is in milliseconds; the default is 600 s.",
            "The list of models is read when the editor's window is reloaded.",
        ),
    )


RECIPE = Recipe("continue", "Continue", ClientProtocol.CHAT, _setup, "Continue 1.5.47; docs.continue.dev/reference")
