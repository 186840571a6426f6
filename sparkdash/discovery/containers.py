"""Running containers of inference engines that sparkdash did not start, from `podman ps` and `docker ps`.

Owns: the words by which an engine's image or command is recognised. Must not know: profiles.
"""

from __future__ import annotations

import json
import re
from typing import Any

from sparkdash.discovery.found import FoundContainer
from sparkdash.domain.container import LABEL_OWNER
from sparkdash.host.command import run_command

PATIENCE_S = 5.0
_ENGINE = re.compile(
    r"vllm|sglang|llama[-.]?(?:server|cpp|swap)|trtllm|tensorrt|ollama|\bnim\b|tabby|infinity|text-embeddings", re.I
)
_COMMANDS = {"podman": ["podman", "ps", "--format", "json"], "docker": ["docker", "ps", "--format", "{{json .}}"]}


async def find_containers() -> tuple[FoundContainer, ...]:
    """Return the engines' containers of podman and docker; none of a program that is missing or does not answer."""
    found: list[FoundContainer] = []
    for program, argv in _COMMANDS.items():
        try:
            done = await run_command(argv, deadline_s=PATIENCE_S)
        except (OSError, TimeoutError):
            continue
        if done.code == 0:
            found += engine_containers(program, done.out)
    return tuple(found)


def engine_containers(program: str, listed: str) -> list[FoundContainer]:
    """Return the engines among listed containers: podman prints one JSON array, docker one object per line."""
    try:
        rows: list[Any] = (
            json.loads(listed) if program == "podman" else [json.loads(row) for row in listed.splitlines()]
        )
    except ValueError:
        return []
    return [one for row in rows or () if isinstance(row, dict) and (one := _engine(program, row)) is not None]


def _engine(program: str, row: dict[str, Any]) -> FoundContainer | None:
    names = row.get("Names")
    name = str(names[0] if isinstance(names, list) and names else names or "")
    image = str(row.get("Image") or "")
    if LABEL_OWNER in str(row.get("Labels") or ""):
        return None
    if not _ENGINE.search(f"{image} {row.get('Command') or ''}"):
        return None
    return FoundContainer(program, name, image)
