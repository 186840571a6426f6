"""Guard words of a node: messages about what another node's memory guard did.

Owns: the texts. Must not know when they are shown.
Pure.
"""

from __future__ import annotations

from sparkdash.domain.container import CONTAINER_PREFIX
from sparkdash.domain.event import Level, Notice
from sparkdash.domain.memory import GuardKill
from sparkdash.errors import EngineError
from sparkdash.nodes.agent.tick import GuardAct
from sparkdash.units import gib, percent

CODE = "memory_guard"
"""Code for an engine that a guard killed, on whichever node."""
PRESSED = 0.10
"""Pressure that is mentioned."""
_HINT = "Give it a smaller context or KV cache, run less beside it, or set `guard_kill_gib` in config.toml."


def profile_of(act: GuardAct) -> str:
    """Return the profile that was killed: as the daemon had named it, or out of the container's name."""
    return act.profile or (act.container or "").removeprefix(CONTAINER_PREFIX).replace(".", "/")


def killed(node: str, act: GuardAct) -> EngineError:
    """Build the failure of an engine that the node's guard killed."""
    missed = "" if act.processes else " None of its processes could be signalled."
    return EngineError(
        f"{node}'s memory guard killed {profile_of(act)}: {_figures(act)}, and under {gib(act.floor)} "
        f"the whole box may stand still.{missed}",
        code=CODE,
        hint=_HINT,
    )


def notice(node: str, act: GuardAct, at: float) -> Notice:
    """Word the notice of one report; `at` is its time by this box's clock."""
    if act.container is None:
        text = f"Memory of {node} is short: {_figures(act)}; `guard` is `warn`, so nothing is done about it."
        return Notice(level=Level.WARNING, code="memory_kill", text=text, at=at)
    return Notice(level=Level.ERROR, code=CODE, text=killed(node, act).text(), profile=profile_of(act), at=at)


def kill_of(node: str, act: GuardAct, at: float) -> GuardKill:
    """Return the kill as the books keep it; `at` is its time by this box's clock."""
    return GuardKill(
        at=at,
        profile=profile_of(act),
        available=act.available,
        pressure=act.pressure,
        processes=act.processes,
        reason=killed(node, act).message,
    )


def _figures(act: GuardAct) -> str:
    pressed = act.pressure is not None and act.pressure >= PRESSED
    pressure = f", with memory pressure at {percent(act.pressure)}" if pressed else ""
    early = act.available >= act.floor and act.fall > 0
    falling = f", falling by {gib(int(act.fall))} a second" if early else ""
    return f"{gib(act.available)} were available{pressure}{falling}"
