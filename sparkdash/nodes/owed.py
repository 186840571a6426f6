"""Owed removals: containers on other nodes that are to be ended as soon as the node can be asked.

Owns: the file that keeps them over the daemon's death. Must not know how a container is ended.

A removal is written down before it is tried, so that a crash in between loses nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import structlog
from pydantic import ValidationError

from sparkdash.domain.base import Frozen
from sparkdash.host.thread import in_thread

LOG = structlog.get_logger("sparkdash.nodes")
FILE_NAME = "owed.json"


class OwedRemoval(Frozen):
    """Containers of one engine on one node, to be ended there."""

    node: str
    head: str
    """Name of the engine's head: it and its workers are found by it."""
    container: str
    """Name of the container there, for people."""


class _Written(Frozen):
    owed: tuple[OwedRemoval, ...] = ()


class OwedRemovals:
    """Removals that are owed, on disk and in memory. `on_change` is called after each change."""

    def __init__(self, file: Path, on_change: Callable[[], object] = lambda: None) -> None:
        self._file = file
        self.on_change = on_change
        self._lock = asyncio.Lock()
        self._owed: tuple[OwedRemoval, ...] = _read(file)

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes on which something is owed."""
        return frozenset(each.node for each in self._owed)

    def on(self, node: str) -> tuple[OwedRemoval, ...]:
        """Removals that are owed on this node."""
        return tuple(each for each in self._owed if each.node == node)

    def containers(self, node: str) -> tuple[str, ...]:
        """Names of the containers that are to be ended on this node, for NodeState.owed."""
        return tuple(each.container for each in self.on(node))

    async def add(self, *removals: OwedRemoval) -> None:
        """Write these down; returns once they are on the disk, or the disk refused them."""
        await self._change(lambda owed: (*(each for each in owed if not _same(each, removals)), *removals))

    async def settle(self, *removals: OwedRemoval) -> None:
        """Cross these off: their containers are gone."""
        await self._change(lambda owed: tuple(each for each in owed if not _same(each, removals)))

    async def _change(self, change: Callable[[tuple[OwedRemoval, ...]], tuple[OwedRemoval, ...]]) -> None:
        async with self._lock:
            owed = change(self._owed)
            if owed == self._owed:
                return
            self._owed = owed
            try:
                await in_thread(lambda: _write(self._file, owed))
            except OSError:  # a full disk: what is owed is known until the daemon ends
                LOG.exception("what is owed on other nodes cannot be written down", file=str(self._file))
        self.on_change()


def _same(one: OwedRemoval, others: tuple[OwedRemoval, ...]) -> bool:
    return any((one.node, one.head) == (other.node, other.head) for other in others)


def _read(file: Path) -> tuple[OwedRemoval, ...]:
    try:
        return _Written.model_validate_json(file.read_bytes()).owed
    except FileNotFoundError:
        return ()
    except (OSError, ValidationError):
        LOG.exception("what is owed on other nodes cannot be read", file=str(file))
        return ()


def _write(file: Path, owed: tuple[OwedRemoval, ...]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    with part.open("w", encoding="utf-8") as handle:
        handle.write(_Written(owed=owed).model_dump_json(indent=2))
        handle.flush()
        os.fsync(handle.fileno())
    part.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
