"""qwen-code: a model of the kind openai in its settings.json.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import LONG_MS, VARIABLE, GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, ConfigFile, FileFormat, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    model = {
        "id": target.model,
        "name": f"sparkdash {target.model}",
        "envKey": VARIABLE,
        "baseUrl": target.v1,
        "generationConfig": {"timeout": LONG_MS, "maxRetries": 1, "contextWindowSize": target.context},
    }
    content = {
        "env": {VARIABLE: target.secret},
        "modelProviders": {"openai": [model]},
        "model": {"name": target.model},
    }
    return Setup(
        files=(ConfigFile("~/.qwen/settings.json", FileFormat.JSON, content, same="id"),),
        run="qwen --auth-type openai",
        notes=("generationConfig.timeout: 120 s otherwise, four times.",),
    )


RECIPE = Recipe(
    "qwen-code",
    "Qwen Code",
    ClientProtocol.CHAT,
    _setup,
    "qwen-code 0.15.10; docs/users/configuration/model-providers.md",
)
