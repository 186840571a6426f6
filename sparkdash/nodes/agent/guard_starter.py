"""GuardStarter: starts a node's memory guard where it should run and does not.

Owns: the start, and the pause before the next one. Must not know the guard's rules, or who renews its lease.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import structlog

from sparkdash.errors import SparkdashError
from sparkdash.nodes.agent.program import GUARD, program_argv, program_text
from sparkdash.nodes.agent.stream import NodeCommands
from sparkdash.units import one_line

LOG = structlog.get_logger("sparkdash.nodes")

START_S = 15.0
"""Deadline of a start."""
AGAIN_S = 30.0
"""Pause before another start."""
SAID_LIMIT = 1000


class GuardStarter:
    """Guard of one node. `on_start` is called after each start, successful or not."""

    def __init__(self, node: str, commands: NodeCommands, owner: str, on_start: Callable[[], None]) -> None:
        self._node, self._commands, self._owner, self._on_start = node, commands, owner, on_start
        self._task: asyncio.Task[None] | None = None
        self._started_at = float("-inf")
        self._failed: str | None = None

    def keep(self, lease: dict[str, Any]) -> None:
        """Begin a start, unless one was begun lately."""
        now = time.monotonic()
        if now - self._started_at >= AGAIN_S and (self._task is None or self._task.done()):
            self._started_at = now
            self._task = asyncio.create_task(self._start(lease), name="node guard")

    async def close(self) -> None:
        """Cancel a start under way; a guard that runs goes on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _start(self, lease: dict[str, Any]) -> None:
        text = program_text(GUARD, self._owner) + json.dumps(lease).encode() + b"\n"
        try:
            done = await self._commands.run(program_argv(GUARD, self._owner), deadline_s=START_S, stdin=text)
            failed = None if done.code == 0 else one_line((done.out + done.err).strip())[-SAID_LIMIT:]
        except SparkdashError as error:
            failed = error.text()
        if failed is not None and failed != self._failed:
            LOG.warning("the memory guard of a node could not be started", node=self._node, why=failed)
        self._failed = failed
        self._on_start()
