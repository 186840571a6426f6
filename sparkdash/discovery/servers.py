"""OpenAI-compatible servers on loopback, found on the ports that such programs listen on by default.

Owns: the ports and the time a look may take. Must not know: profiles.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from sparkdash.discovery.found import FoundServer
from sparkdash.errors import SparkdashError
from sparkdash.upstream import Upstream

PORTS = {
    11434: "Ollama",
    8080: "llama-swap or llama-server",
    8000: "vLLM",
    30000: "SGLang",
    8355: "TensorRT-LLM",
    8888: "Atlas",
    1234: "LM Studio",
    5000: "TabbyAPI",
    4000: "LiteLLM",
}
"""Default ports of programs that serve models, with the program."""
PATIENCE_S = 1.5
"""Longest wait for one server's list of models, in seconds."""
MOST_MODELS = 20
MODELS_PATH = "/v1/models"
_OWNER = "sparkdash"


async def find_servers(ports: Iterable[int] = tuple(PORTS), *, besides: int | None = None) -> tuple[FoundServer, ...]:
    """Ask each port of loopback for its models at once; `besides` is the gateway's own port and is left out."""
    async with Upstream() as upstream:
        asked = [_ask(upstream, port) for port in ports if port != besides]
        return tuple(found for found in await asyncio.gather(*asked) if found is not None)


async def _ask(upstream: Upstream, port: int) -> FoundServer | None:
    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(PATIENCE_S):
            answer = await upstream.get(url + MODELS_PATH, timeout_s=PATIENCE_S)
    except (SparkdashError, OSError, TimeoutError):
        return None
    models = _models(answer.body) if answer.status == 200 else None
    if models is None:
        return None
    return FoundServer(PORTS.get(port, "a server"), url, models[:MOST_MODELS])


def _models(body: bytes) -> tuple[str, ...] | None:
    """Return the names in a list of models; None if it is no such list, or the list of a sparkdash gateway."""
    try:
        listed: Any = json.loads(body)
        rows = listed["data"]
        names = tuple(row["id"] for row in rows if isinstance(row["id"], str))
    except (ValueError, TypeError, KeyError):
        return None
    return None if any(row.get("owned_by") == _OWNER for row in rows) else names
