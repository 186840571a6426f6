"""LibreChat: a custom endpoint in librechat.yaml, which lies wherever LibreChat was installed.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import VARIABLE, GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, ConfigFile, FileFormat, Recipe, Setup

HEAD = {"version": "1.3.0"}
"""Version of the format, not of LibreChat, which exits at its start when the file has none."""


def _setup(target: GatewayTarget) -> Setup:
    endpoint = {
        "name": "sparkdash",
        "apiKey": f"${{{VARIABLE}}}" if target.key else target.secret,
        "baseURL": target.v1,
        "models": {"default": [target.model], "fetch": True},
        "titleConvo": True,
        "titleModel": "auto",
        "modelDisplayLabel": "sparkdash",
    }
    return Setup(
        files=(ConfigFile(None, FileFormat.YAML, {"endpoints": {"custom": [endpoint]}}, seed=HEAD),),
        env={VARIABLE: target.secret} if target.key else {},
        notes=(
            "titleModel `auto` is whatever runs, so titles never cause a swap.",
            "In a container, 127.0.0.1 is the container itself. Run it with the host's network, or give sparkdash "
            "a key and an open port (docs/access.md), and use `--url http://host.docker.internal:PORT`.",
        ),
    )


RECIPE = Recipe(
    "librechat",
    "LibreChat",
    ClientProtocol.CHAT,
    _setup,
    "librechat.ai/docs/configuration/librechat_yaml/object_structure/custom_endpoint (2026), "
    "librechat-data-provider 0.8.524; not run here",
)
