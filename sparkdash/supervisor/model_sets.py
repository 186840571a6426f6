"""Sets of profiles that run side by side, planned together: `[sets]` of the settings.

Owns: what a set needs in sum, who leaves for it, and the refusal with the sum. Must not know how engines load: the
scheduler brings the members up one after another.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.catalog import Catalog
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.swap import SetMember, SetPlan, SwapCause
from sparkdash.errors import AdmissionError
from sparkdash.limits import shown
from sparkdash.settings import Settings
from sparkdash.supervisor.planner import Planner
from sparkdash.supervisor.scheduling import refusals
from sparkdash.supervisor.scheduling.moves import Move, Preload, Release, Stop
from sparkdash.supervisor.scheduling.records import SchedulerRecords
from sparkdash.supervisor.scheduling.room import BoxMemory
from sparkdash.units import gib


def members_of(name: str, settings: Settings, catalog: Catalog) -> tuple[Profile, ...]:
    """Return the profiles of a set.

    Raises:
        AdmissionError: `set_not_found`, `model_not_found`, `cannot_run`, `set_needs_one_box`, `one_at_a_time`.
    """
    words = settings.sets.get(name)
    if words is None:
        known = f"Known sets: {', '.join(settings.sets)}." if settings.sets else "config.toml has no table [sets]."
        raise AdmissionError(f"There is no set {shown(name)!r}.", code="set_not_found", status=404, hint=known)
    if not settings.side_by_side:
        raise AdmissionError(
            "A set runs side by side, and `side_by_side` is false in config.toml.",
            code="one_at_a_time",
            hint="Set side_by_side = true.",
        )
    found = tuple({profile.name: profile for profile in map(catalog.find, words)}.values())
    for profile in found:
        if profile.nodes > 1 or profile.node not in (None, LOCAL):
            raise AdmissionError(
                f"The set {name} is for this box, and {profile.name} runs on other nodes.",
                code="set_needs_one_box",
                hint="Take it out of the set, and start it with `sparkdash use`.",
            )
    return found


class SetPlanner:
    """Plans a set on the records of the scheduler."""

    def __init__(self, planner: Planner, records: SchedulerRecords) -> None:
        self._planner = planner
        self._records = records

    def plan(self, name: str, members: tuple[Profile, ...]) -> SetPlan:
        """Plan the set. Raises AdmissionError: a member cannot be started."""
        self._refuse_unstartable(members)
        names = {profile.name for profile in members}
        engines = self._engines_here()
        leaving = [each for each in engines if each not in names and not self._pinned(each)]
        restarted = [each for each in engines if each in names]
        box = self._planner.boxes().get(LOCAL, BoxMemory())
        rows = tuple(self._row(profile) for profile in members)
        total, room = _total_needs(rows), self._room(box, [*leaving, *restarted])
        return SetPlan(
            name=name,
            members=rows,
            evict=tuple(leaving),
            needs_bytes=total,
            available_bytes=room,
            reserve_bytes=box.reserve,
            fits=None if total is None or room is None else total <= room,
        )

    def _refuse_unstartable(self, members: tuple[Profile, ...]) -> None:
        for profile in members:
            if error := refusals.unstartable(profile.name, self._planner.profile_facts(profile)):
                raise error

    def _engines_here(self) -> list[str]:
        """Profiles that hold memory of this box now, or load."""
        records = self._records
        return [name for name in dict.fromkeys((*records.residents, *filter(None, records.swaps))) if self._ours(name)]

    def _row(self, profile: Profile) -> SetMember:
        runs = self._records.as_written(profile.name)
        if profile.engine is EngineKind.REMOTE:
            return SetMember(profile=profile.name, needs_bytes=0, runs=True)
        needs = self._planner.need(profile.name).room_bytes if self._ours(profile.name) else 0
        return SetMember(profile=profile.name, needs_bytes=needs, runs=runs)

    def _room(self, box: BoxMemory, leaving: list[str]) -> int | None:
        """Return the bytes beyond the reserve, if all of these gave back what they hold."""
        if box.available is None:
            return None
        free = box.available + sum(self._planner.need(one).total_bytes or 0 for one in leaving)
        return (free if box.total is None else min(free, box.total)) - box.reserve

    def _ours(self, name: str) -> bool:
        return self._records.managed(name)

    def _pinned(self, name: str) -> bool:
        known = self._records.profiles.get(name)
        return known is not None and known.pinned


def _total_needs(rows: tuple[SetMember, ...]) -> int | None:
    """Sum of the members' needs; None while one is unknown."""
    needs = [row.needs_bytes for row in rows]
    return None if None in needs else sum(filter(None, needs))


def set_refusal(plan: SetPlan) -> AdmissionError | None:
    """Why a set is not begun, with the sum; None when it may be."""
    unknown = [row.profile for row in plan.members if row.needs_bytes is None]
    if unknown:
        return AdmissionError(
            f"Whether the set {plan.name} fits is unknown, because the need of {', '.join(unknown)} is.",
            code="set_unknown",
            hint="Start each of them once with `sparkdash use`: its need is learned then.",
        )
    if plan.fits is not False:
        return None
    parts = ", ".join(f"{row.profile} {gib(row.needs_bytes)}" for row in plan.members)
    return AdmissionError(
        f"The set {plan.name} needs {gib(plan.needs_bytes)} ({parts}); {gib(plan.available_bytes)} can be freed beyond "
        f"the reserve of {gib(plan.reserve_bytes)}.",
        code="does_not_fit",
        hint="Take a profile out of the set, or give one a smaller context.",
    )


def set_moves(plan: SetPlan) -> Iterator[Move]:
    """Yield the moves that bring the set up: the others stop, then the members come, one after another."""
    yield from (Stop(name) for name in plan.evict)
    missing = tuple(row.profile for row in plan.members if not row.runs)
    yield from (Release(name) for name in missing)
    yield Preload(missing, SwapCause.SET)
