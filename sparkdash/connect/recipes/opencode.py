"""opencode: a provider in its global opencode.json.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import LONG_MS, VARIABLE, GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, ConfigFile, FileFormat, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    limit = {"context": target.context, "output": target.output}
    eyes = {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}} if target.sees else {}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "sparkdash",
        "options": {
            "baseURL": target.v1,
            "apiKey": f"{{env:{VARIABLE}}}" if target.key else target.secret,
            "timeout": LONG_MS,
            "headerTimeout": LONG_MS,
            "chunkTimeout": LONG_MS,
        },
        "models": {target.model: {"name": target.model, **eyes, "limit": limit}},
    }
    name = f"sparkdash/{target.model}"
    schema = {"$schema": "https://opencode.ai/config.json"}
    content = {
        "provider": {"sparkdash": provider},
        "model": name,
        "small_model": name,
    }
    return Setup(
        files=(ConfigFile("~/.config/opencode/opencode.json", FileFormat.JSON, content, seed=schema),),
        env={VARIABLE: target.secret} if target.key else {},
        run=f"opencode -m {name}",
        notes=(
            "small_model is the same model: opencode asks for title and answer at once, and two models would swap.",
            "Some versions always give up after 300 s of silence. sparkdash sends bytes every 5 s while a model loads.",
        ),
    )


RECIPE = Recipe("opencode", "opencode", ClientProtocol.CHAT, _setup, "opencode 1.18.33; opencode.ai/docs/config")
