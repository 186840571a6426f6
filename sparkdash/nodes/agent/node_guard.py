"""Memory guard of a node as seen from here: its lease, its start, and what it did in words."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sparkdash.domain.container import CONTAINER_PREFIX
from sparkdash.domain.event import Level, Notice
from sparkdash.errors import EngineError, SparkdashError
from sparkdash.host.memory import guard_decisions as decisions
from sparkdash.log import LOG
from sparkdash.nodes.agent.tick import GuardAct
from sparkdash.nodes.programs import program_text, stream_argv
from sparkdash.nodes.ssh.connection import NodeConnection
from sparkdash.settings import Settings
from sparkdash.units import gib, one_line, percent

GUARD = (
    "sparkdash.host.guard_rules",
    "sparkdash.host.kernel_figures",
    "sparkdash.host.processes.proc",
    "sparkdash.nodes.agent.engine_processes",
    "sparkdash.nodes.agent.guard_files",
    "sparkdash.nodes.agent.remote_guard",
)
CODE = "memory_guard"
"""Code for an engine that a guard killed, on whichever node."""
PRESSED = 0.10


def profile_of(act: GuardAct) -> str:
    """Return the profile that was killed: as the daemon had named it, or out of the container's name."""
    return act.profile or (act.container or "").removeprefix(CONTAINER_PREFIX).replace("..", "@").replace(".", "/")


def killed(node: str, act: GuardAct) -> EngineError:
    missed = "" if act.processes else " None of its processes could be signalled."
    return EngineError(
        f"{node}'s memory guard killed {profile_of(act)}: {_figures(act)}, and under {gib(act.floor)} "
        f"the whole box may stand still.{missed}",
        code=CODE,
        hint="Give it a smaller context or KV cache, run less beside it, or set `guard_kill_gib` in config.toml.",
    )


def notice(node: str, act: GuardAct, at: float) -> Notice:
    """Word the notice of one report; `at` is its time by this box's clock."""
    if act.container is None:
        text = f"Memory of {node} is short: {_figures(act)}; `guard` is `warn`, so nothing is done about it."
        return Notice(level=Level.WARNING, code="memory_kill", text=text, at=at)
    return Notice(level=Level.ERROR, code=CODE, text=killed(node, act).text(), profile=profile_of(act), at=at)


def _figures(act: GuardAct) -> str:
    pressed = act.pressure is not None and act.pressure >= PRESSED
    pressure = f", with memory pressure at {percent(act.pressure)}" if pressed else ""
    early = act.available >= act.floor and act.fall > 0
    falling = f", falling by {gib(int(act.fall))} a second" if early else ""
    return f"{gib(act.available)} were available{pressure}{falling}"


START_S = 15.0
AGAIN_S = 30.0
SAID_LIMIT = 1000


class GuardStarter:
    """Guard of one node. `on_start` is called after each start, successful or not."""

    def __init__(self, node: str, connection: NodeConnection, owner: str, on_start: Callable[[], None]) -> None:
        self._node, self._connection, self._owner, self._on_start = node, connection, owner, on_start
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
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _start(self, lease: dict[str, Any]) -> None:
        text = program_text(*GUARD) + json.dumps(lease).encode() + b"\n"
        try:
            done = await self._connection.run(stream_argv(GUARD, self._owner), deadline_s=START_S, stdin=text)
            failed = None if done.code == 0 else one_line((done.out + done.err).strip())[-SAID_LIMIT:]
        except SparkdashError as error:
            failed = error.text()
        if failed is not None and failed != self._failed:
            LOG.warning("the memory guard of a node could not be started", node=self._node, why=failed)
        self._failed = failed
        self._on_start()


TTL_S = 60.0
"""Time without renewal after which a guard without engines ends: four renewals."""


@dataclass(frozen=True, slots=True)
class GuardedContainer:
    """Container on the node that its guard may kill, with the cost of that; as `decisions.Victim`."""

    container: str
    profile: str
    serves: bool = False
    pinned: bool = False
    in_flight: int = 0
    bytes: int | None = None
    reload_s: float | None = None


def make_lease(settings: Settings, total: int, containers: Iterable[GuardedContainer]) -> dict[str, Any]:
    if settings.guard == "off":
        return {"stop": True}
    floors = decisions.choose_floors(settings, total)
    return {
        "act": settings.guard == "act",
        "ttl_s": TTL_S,
        "floors": {"warn": floors.warn, "hold": floors.hold, "kill": floors.kill},
        "engines": [asdict(each) for each in containers],
    }
