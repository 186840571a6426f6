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
OLLAMA_PATH = "/api/tags"
"""Ollama's own list, which says what each model can do and whether it runs elsewhere."""
_OWNER = "sparkdash"
_WRITES = "completion"


async def find_servers(ports: Iterable[int] = tuple(PORTS), *, besides: int | None = None) -> tuple[FoundServer, ...]:
    """Ask each port of loopback for its models at once; `besides` is the gateway's own port and is left out."""
    async with Upstream() as upstream:
        asked = [_ask(upstream, port) for port in ports if port != besides]
        return tuple(found for found in await asyncio.gather(*asked) if found is not None)


async def _ask(upstream: Upstream, port: int) -> FoundServer | None:
    url = f"http://127.0.0.1:{port}"
    models = _models(await _read(upstream, url + MODELS_PATH))
    if models is None:
        return None
    elsewhere, mute = _ollama_marks(await _read(upstream, url + OLLAMA_PATH))
    here = sorted((name for name in models if name not in elsewhere), key=lambda name: name in mute)
    return FoundServer(PORTS.get(port, "a server"), url, tuple(here[:MOST_MODELS]), mute)


async def _read(upstream: Upstream, url: str) -> bytes:
    """Return the body of an answer with status 200; empty for any other, and for none in time."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            answer = await upstream.get(url, timeout_s=PATIENCE_S)
    except (SparkdashError, OSError, TimeoutError):
        return b""
    return answer.body if answer.status == 200 else b""


def _models(body: bytes) -> tuple[str, ...] | None:
    """Return the names in a list of models; None if it is no such list, or the list of a sparkdash gateway."""
    try:
        listed: Any = json.loads(body)
        rows = listed["data"]
        names = tuple(row["id"] for row in rows if isinstance(row["id"], str))
    except (ValueError, TypeError, KeyError):
        return None
    return None if any(row.get("owned_by") == _OWNER for row in rows) else names


def _ollama_marks(body: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """Return the models that run on another host, and those that write no text; none of an answer of another kind."""
    try:
        rows = [
            (row["name"], bool(row.get("remote_host")), row.get("capabilities")) for row in json.loads(body)["models"]
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        return frozenset(), frozenset()
    mute = (name for name, _, can in rows if isinstance(can, list) and can and _WRITES not in can)
    return frozenset(name for name, elsewhere, _ in rows if elsewhere), frozenset(mute)
