"""Decisions of the memory guard: when memory is too short, and which engine to kill.

Sources: GB10 owners kill under 8 GiB (HF nvidia/GLM-5.3-Flash-FP4-Local discussion 7) or guard with 8 GiB during loads
(tonyd2wild's field report). A floor of 2 GiB killed an engine that was steady at 1.5-1.9 GiB (model-serving-minefield
134). Available memory was seen to fall by 17-19 GiB in 10 s. The defaults (12, 8 and 5 GiB) lie between. They and the
use of PSI are unverified on a GB10.

Promise, on a Spark's floors, for available memory that falls steadily from above the hold floor: at 3 GiB a second or
less it stays above the kill floor, at 8 above FROZEN. So an engine is killed once the observed fall reaches the kill
floor sooner than a kill after the next look would take effect. A faster fall is seen too late: only the admission
before each start protects against it. Pure.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sparkdash.domain.memory import Floors, GuardLevel
from sparkdash.host import guard_rules
from sparkdash.host.guard_rules import GuardReading, Judgement
from sparkdash.host.memory.wedge_signs import Wedge
from sparkdash.settings import Settings
from sparkdash.units import GIB

LEVELS = tuple(GuardLevel)
"""Levels by their number in `guard_rules`."""
DEFAULTS = {"warn": (12 * GIB, 0.12), "hold": (8 * GIB, 0.08), "kill": (5 * GIB, 0.05)}
"""Each floor, and its largest share of the box, as a Spark's floors would block a small box."""
FROZEN = 2 * GIB
"""Available memory below which boxes froze: by their owners' reports 1.5 to 2 GiB are too few."""


@dataclass(frozen=True, slots=True)
class Victim:
    """Engine that may be killed, with the cost of that."""

    profile: str
    container: str
    kill: Callable[[], int]
    """Sends SIGKILL to all processes of the engine; returns their number."""
    serves: bool = True
    """False while the engine loads, and after a failure to stop."""
    loads: bool = False
    pinned: bool = False
    in_flight: int = 0
    bytes: int | None = None
    """Estimate of its memory; None if unknown."""
    reload_s: float | None = None
    """Time of a restart; None if unknown, which counts as long."""


@dataclass(frozen=True, slots=True)
class GuardReport:
    """Report of the guard: a changed level, a kill, or a failed look."""

    look: GuardReading
    verdict: Judgement
    killed: Victim | None = None
    processes: int | None = None
    """Killed processes; 0 if none could be signalled, None before the kill."""
    wedge: Wedge | None = None
    """Sign for which a load is stopped; None if memory itself is short."""
    blocks: int | None = None
    """Free blocks of 32 MiB at a sign; None if unknown."""
    error: str | None = None
    """Reason of a failed look or kill; reported once for each reason."""

    @property
    def level(self) -> GuardLevel:
        return LEVELS[self.verdict.level]


def choose_floors(settings: Settings, total: int) -> Floors:
    """Choose the floors for a box of `total` bytes; the owner's values count, and raise milder floors if needed."""
    given = {"warn": settings.guard_warn_gib, "hold": settings.guard_hold_gib, "kill": settings.guard_kill_gib}
    found = {
        name: int(own * GIB) if (own := given[name]) is not None else min(default, int(total * share))
        for name, (default, share) in DEFAULTS.items()
    }
    hold = max(found["hold"], found["kill"])
    return Floors(warn=max(found["warn"], hold), hold=hold, kill=found["kill"])


def rule_floors(floors: Floors) -> guard_rules.Floors:
    return guard_rules.Floors(floors.warn, floors.hold, floors.kill)


def cheapest_victim(victims: Iterable[Victim], lacking: int) -> Victim | None:
    """Choose the engine to kill for `lacking` bytes; None without engines."""
    return min(victims, key=lambda victim: _cost(victim, lacking), default=None)


def _cost(victim: Victim, lacking: int) -> tuple[bool, bool, bool, bool, float, int]:
    return guard_rules.kill_cost(
        serves=victim.serves,
        pinned=victim.pinned,
        in_flight=victim.in_flight,
        size=victim.bytes,
        reload_s=victim.reload_s,
        lacking=lacking,
    )
