"""Guard words: messages about the memory guard, from its figures.

Owns: their codes and texts. Must not know when they are shown.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.event import Level
from sparkdash.domain.memory.guard import Floors, GuardLevel
from sparkdash.errors import AdmissionError, EngineError
from sparkdash.host.memory_guard.decisions import GuardReport
from sparkdash.host.memory_guard.wedge_signs import Sign, Wedge
from sparkdash.units import gib, percent

CODE = "memory_guard"
"""Code for an engine that the guard killed."""
WEDGING = "memory_wedging"
"""Code for a load that the guard stopped on a sign that the box was about to stand still."""
LIVELOCK = "load_livelock"
"""Code for a load that the guard stopped because its way of reading stood still. It is the profile's own failure, and
parks it.
"""
CODES = frozenset({CODE, WEDGING, LIVELOCK})
RETRY_S = 10.0
"""Seconds that clients are asked to wait while memory is short."""

GRAVITY = {
    GuardLevel.OK: Level.INFO,
    GuardLevel.WARN: Level.WARNING,
    GuardLevel.HOLD: Level.WARNING,
    GuardLevel.KILL: Level.ERROR,
}
_MEANS = {
    GuardLevel.WARN: "soon no load will begin",
    GuardLevel.HOLD: "no load begins until it is back",
    GuardLevel.KILL: "the engine that costs least is killed next",
}


def level(report: GuardReport, floors: Floors, *, acts: bool) -> str:
    """Word the notice that the guard entered another level."""
    now, available = report.verdict.level, report.look.available
    if now is not GuardLevel.OK:
        means = _MEANS[now] if acts else "`guard` is `warn`, so nothing is done about it"
        return f"Memory is short: {gib(available)} are available{_pressed(report)}; {means}."
    if floors.level(available) is GuardLevel.OK:
        return f"Memory is no longer short: {gib(available)} are available."
    return f"No engine runs any more, and the memory guard rests; {gib(available)} are available."


def ended(report: GuardReport, profile: str, floors: Floors) -> EngineError:
    """Build the failure of an engine that the guard ended, as memory was short or the box about to freeze."""
    return killed(report, profile, floors) if report.wedge is None else wedging(report, report.wedge, profile)


def wedging(report: GuardReport, wedge: Wedge, profile: str) -> EngineError:
    """Build the failure of a load that the guard stopped on a sign."""
    return EngineError(
        f"The memory guard stopped the load of {profile}: {wedge.evidence}, and boxes stood still for good after that. "
        f"{gib(report.look.available)} were available{_blocks(report)}.{_missed(report)}",
        code=LIVELOCK if wedge.sign is Sign.LIVELOCK else WEDGING,
        hint=_MENDS[wedge.sign],
    )


def warned(wedge: Wedge) -> str:
    """A sign that nothing is done about."""
    return f"The box may stand still soon: {wedge.evidence}. `guard` is `warn`, so the load goes on."


_FRAGMENTED = "Look at `sparkdash doctor contiguity`; a reboot mends fragmented memory."
_MENDS = {
    Sign.RECLAIM: _FRAGMENTED,
    Sign.DRIVER: f"Give it a smaller context or KV cache. {_FRAGMENTED}",
    Sign.LIVELOCK: "Load it without mmap: `--load-format fastsafetensors` or `instanttensor` (vLLM), "
    "`--load-mode dio` (llama.cpp).",
}


def killed(report: GuardReport, profile: str, floors: Floors) -> EngineError:
    """Build the failure of an engine that the guard killed."""
    return EngineError(
        f"The memory guard killed {profile}: {gib(report.look.available)} were available{_pressed(report)}"
        f"{_falling(report, floors)}, and under {gib(floors.kill)} the whole box may stand still.{_missed(report)}",
        code=CODE,
        hint="Give it a smaller context or KV cache, run less beside it, or set `guard_kill_gib` in config.toml.",
    )


def short(profile: str, available: int, floors: Floors) -> AdmissionError:
    """Build the refusal of a load while memory is short."""
    return AdmissionError(
        f"{profile} is not started while memory is short: {gib(available)} are available, "
        f"and until {gib(floors.hold)} are, the memory guard lets no load begin.",
        code="memory_low",
        status=503,
        retry_after=RETRY_S,
        hint="Stop an engine or what else holds memory, or lower `guard_hold_gib` in config.toml.",
    )


def _blocks(report: GuardReport) -> str:
    return "" if report.blocks is None else f", and {report.blocks} free blocks of 32 MiB"


def _missed(report: GuardReport) -> str:
    return " None of its processes could be signalled; the runtime is asked instead." if report.processes == 0 else ""


def _pressed(report: GuardReport) -> str:
    return f", with memory pressure at {percent(report.look.pressure)} and rising" if report.verdict.pressed else ""


def _falling(report: GuardReport, floors: Floors) -> str:
    """Said where the floor was not reached yet."""
    early = report.look.available >= floors.kill and report.verdict.fall > 0
    return f", falling by {gib(int(report.verdict.fall))} a second" if early else ""
