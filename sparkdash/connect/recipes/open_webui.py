"""Open WebUI: variables of its process.

Pure.
"""

from __future__ import annotations

from sparkdash.connect.gateway_target import GatewayTarget
from sparkdash.connect.recipe import ClientProtocol, Recipe, Setup


def _setup(target: GatewayTarget) -> Setup:
    return Setup(
        env={
            "OPENAI_API_BASE_URLS": target.v1,
            "OPENAI_API_KEYS": target.secret,
            "TASK_MODEL_EXTERNAL": "auto",
        },
        notes=(
            "TASK_MODEL_EXTERNAL `auto` is whatever runs, so titles, tags and follow-ups never cause a swap.",
            "Saved admin settings override variables: see Settings | Connections and Settings | Interface.",
            "In a container, 127.0.0.1 is the container itself. Run it with the host's network, or give sparkdash "
            "a key and an open port (docs/access.md), and use `--url http://host.docker.internal:PORT`.",
            "Open WebUI has no time-out by default (AIOHTTP_CLIENT_TIMEOUT is empty).",
        ),
    )


RECIPE = Recipe(
    "open-webui",
    "Open WebUI",
    ClientProtocol.CHAT,
    _setup,
    "Open WebUI 0.12.4, its env.py and routers/openai.py; not run here",
)
