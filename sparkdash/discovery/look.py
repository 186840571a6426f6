"""Look at the box: servers and configuration files of other programs, at the same time."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sparkdash.discovery.found import LLAMA_SWAP, Discovered, FoundFile, FoundServer
from sparkdash.errors import SparkdashError
from sparkdash.paths import open_regular
from sparkdash.upstream import Upstream

PLACES = (
    "~/.config/llama-swap/config.yaml",
    "~/.config/llama-swap/config.yml",
    "~/llama-swap/config.yaml",
    "/etc/llama-swap/config.yaml",
)


def find_files() -> tuple[FoundFile, ...]:
    path = next((path for path in (Path(place).expanduser() for place in PLACES) if _is_readable(path)), None)
    return (FoundFile(LLAMA_SWAP, str(path)),) if path else ()


def _is_readable(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            return bool(file.read(1))
    except OSError:
        return False


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
MOST_MODELS = 20
OLLAMA_PATH = "/api/tags"
"""Ollama's own list, which says what each model can do and whether it runs elsewhere."""


async def find_servers(ports: Iterable[int] = tuple(PORTS), *, besides: int | None = None) -> tuple[FoundServer, ...]:
    async with Upstream() as upstream:
        asked = [_ask(upstream, port) for port in ports if port != besides]
        return tuple(found for found in await asyncio.gather(*asked) if found is not None)


async def _ask(upstream: Upstream, port: int) -> FoundServer | None:
    url = f"http://127.0.0.1:{port}"
    models = _models(await _read(upstream, url + "/v1/models"))
    if models is None:
        return None
    elsewhere, mute = _ollama_marks(await _read(upstream, url + OLLAMA_PATH))
    here = sorted((name for name in models if name not in elsewhere), key=lambda name: name in mute)
    return FoundServer(PORTS.get(port, "a server"), url, tuple(here[:MOST_MODELS]), mute)


async def _read(upstream: Upstream, url: str) -> bytes:
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
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return None if any(row.get("owned_by") == "sparkdash" for row in rows) else names


def _ollama_marks(body: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """Return the models that run on another host, and those that write no text; none of an answer of another kind."""
    try:
        rows = [
            (row["name"], bool(row.get("remote_host")), row.get("capabilities")) for row in json.loads(body)["models"]
        ]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return frozenset(), frozenset()
    mute = (name for name, _, can in rows if isinstance(can, list) and can and "completion" not in can)
    return frozenset(name for name, elsewhere, _ in rows if elsewhere), frozenset(mute)


async def discover(*, own_port: int, further_ports: tuple[int, ...] = ()) -> Discovered:
    servers, files = await asyncio.gather(
        find_servers((*PORTS, *further_ports), besides=own_port), asyncio.to_thread(find_files)
    )
    return Discovered(servers, files)
