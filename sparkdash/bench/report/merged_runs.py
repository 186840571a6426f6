"""Report merged from many runs: the newest sample set that counts of every cell, with its run and date.

Rule 1: one suite, by its hash, and simulated runs apart from real ones. Other runs are left out, and named.
Rule 2: nights differ. The merged runs are judged as a screen: a difference is shown and never claimed. Pure.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sparkdash.bench.report.assemble import assemble_report, estimate_blank, resume_command
from sparkdash.bench.report.report import CellSource, ComparisonFlag, MissingCells, Report
from sparkdash.bench.results import CellRecord, LaunchRecord, RequestSample, Results
from sparkdash.bench.run import Arm, CellKey, LaunchSlot, Mode, PlannedCell, Run

Identity = tuple[str, tuple[tuple[str, str], ...]]
"""Profile and swept parameters."""


@dataclass(frozen=True, slots=True)
class _Filled:
    """Cell of an arm, and the run whose samples fill it."""

    results: Results
    arm: str
    at: datetime

    def samples(self, keys: set[CellKey]) -> list[RequestSample]:
        return [one for one in self.results.samples if one.arm == self.arm and one.cell in keys]

    def cells(self, keys: set[CellKey]) -> list[CellRecord]:
        return [one for one in self.results.cells if one.arm == self.arm and one.key in keys]


def select_runs(runs: Iterable[Run], suite: str | None = None, *, simulated: bool | None = None) -> list[Run]:
    """Return the runs that belong to one matrix, newest first: those of the newest run's suite, by its hash.

    `simulated`: None takes real runs, and simulated ones where there are no others.
    """
    asked = [one for one in runs if suite in (None, one.suite)]
    kinds = [one for one in asked if one.simulated is bool(simulated)]
    if simulated is None and not kinds:
        kinds = asked
    ordered = sorted(kinds, key=lambda one: one.created_at, reverse=True)
    return [one for one in ordered if one.suite_hash == ordered[0].suite_hash]


def merge_runs(runs: Sequence[Results], closed: Collection[str] = (), named: Collection[str] = ()) -> Report:
    """Build the report of runs of one suite, newest first; `closed` are ids of runs that cannot be resumed.

    Other arms than the `named` profiles are left out, unless no run has one of these.
    Raises:
        ValueError: no run.
    """
    if not runs:
        raise ValueError("no run to merge")
    runs = [one for one in runs if any(arm.profile in named for arm in one.run.arms)] or runs
    arms = _arms(runs, named)
    cells = _cells(runs)
    filled = {
        (name, cell.key): found
        for name, places in arms.items()
        for cell in cells
        if (found := _newest(places, cell.key)) is not None
    }
    merged = _merged(runs, arms, cells, filled)
    report = assemble_report(merged)
    sources = tuple(
        CellSource(arm=arm, key=key, run=one.results.run.id, at=one.at) for (arm, key), one in filled.items()
    )
    flags = (*report.flags, *_flags(filled))
    return report.replace(sources=sources, filling=_filling(merged, arms, filled, closed), flags=flags)


def _arms(runs: Sequence[Results], wanted: Collection[str]) -> dict[str, list[tuple[Results, Arm]]]:
    """Return every measured profile by a unique name, newest first; a second arm of one in a run is left out."""
    found: dict[Identity, list[tuple[Results, Arm]]] = {}
    for results in runs:
        seen = set()
        for arm in _wanted(results.run.arms, wanted):
            who = arm.profile, tuple(sorted(arm.parameters.items()))
            if who not in seen:
                found.setdefault(who, []).append((results, arm))
            seen.add(who)
    named: dict[str, list[tuple[Results, Arm]]] = {}
    for places in found.values():
        name = places[0][1].name
        number = sum(one == name or one.startswith(f"{name} (") for one in named)
        named[f"{name} ({number + 1})" if number else name] = places
    return named


def _wanted(arms: Sequence[Arm], wanted: Collection[str]) -> Sequence[Arm]:
    return [one for one in arms if one.profile in wanted] or arms


def _cells(runs: Sequence[Results]) -> tuple[PlannedCell, ...]:
    """Return every planned cell once, with its most repetitions, in the order of the newest run."""
    found: dict[CellKey, PlannedCell] = {}
    for results in runs:
        for cell in results.run.cells:
            known = found.get(cell.key)
            if known is None or known.reps < cell.reps:
                found[cell.key] = PlannedCell(key=cell.key, reps=cell.reps)
    return tuple(found.values())


def _newest(places: Iterable[tuple[Results, Arm]], key: CellKey) -> _Filled | None:
    for results, arm in places:
        if results.good(arm.name, key):
            ends = (one.ended_at for one in results.cells if one.arm == arm.name and one.key == key and not one.void)
            return _Filled(results, arm.name, max(ends, default=results.run.created_at))
    return None


def _merged(
    runs: Sequence[Results],
    arms: Mapping[str, Sequence[tuple[Results, Arm]]],
    cells: tuple[PlannedCell, ...],
    filled: Mapping[tuple[str, CellKey], _Filled],
) -> Results:
    """Build results whose launches are those of the runs that fill a cell, numbered anew."""
    taken = _Taken()
    for name in arms:
        mine = {key: one for (arm, key), one in filled.items() if arm == name}
        for source in {one.results.run.id: one for one in mine.values()}.values():
            taken.add(name, source, {key for key, one in mine.items() if one.results is source.results})
    known = tuple(places[0][1].replace(name=name) for name, places in arms.items())
    base = next((arm for arm, _ in filled), known[0].name)
    newest = runs[0].run
    run = newest.replace(
        id=f"matrix-{newest.suite}", arms=known, baseline=_baseline(runs, arms, base), mode=Mode.SCREEN,
        order=tuple(taken.order), cells=cells, reps=None, ended_at=None,
    )  # fmt: skip
    return Results(run=run, launches=tuple(taken.launches), cells=tuple(taken.records), samples=tuple(taken.samples))


@dataclass(slots=True)
class _Taken:
    """Records taken over from the merged runs, their launches numbered anew."""

    order: list[LaunchSlot] = field(default_factory=list)
    launches: list[LaunchRecord] = field(default_factory=list)
    records: list[CellRecord] = field(default_factory=list)
    samples: list[RequestSample] = field(default_factory=list)

    def add(self, name: str, source: _Filled, keys: set[CellKey]) -> None:
        samples = source.samples(keys)
        number = {launch: len(self.order) + at for at, launch in enumerate(sorted({one.launch for one in samples}))}
        self.order += (LaunchSlot(arm=name, block=place) for place in number.values())
        self.samples += (one.replace(arm=name, launch=number[one.launch]) for one in samples)
        closed = [one for one in source.cells(keys) if one.launch in number]
        self.records += (one.replace(arm=name, launch=number[one.launch]) for one in closed)
        for one in source.results.launches:
            if one.arm == source.arm and (place := number.get(one.index)) is not None:
                self.launches.append(one.replace(arm=name, index=place, block=place))


def _baseline(runs: Sequence[Results], arms: Mapping[str, Sequence[tuple[Results, Arm]]], other: str) -> str:
    """Return the baseline of the oldest run, with which the matrix was begun."""
    for name, places in arms.items():
        if any(results is runs[-1] and arm.name == results.run.baseline for results, arm in places):
            return name
    return other


def _filling(
    merged: Results,
    arms: Mapping[str, Sequence[tuple[Results, Arm]]],
    filled: Mapping[tuple[str, CellKey], _Filled],
    closed: Collection[str],
) -> tuple[MissingCells, ...]:
    found = []
    for name, places in arms.items():
        blank = [cell for cell in merged.run.cells if (name, cell.key) not in filled]
        if blank and places[0][1].impossible is None:
            open_runs = [place for place in places if place[0].run.id not in closed]
            found.append(estimate_blank(merged, name, blank, _command(merged.run, name, open_runs)))
    return tuple(found)


def _command(run: Run, name: str, places: Sequence[tuple[Results, Arm]]) -> str:
    """Return the resumption of an unfinished run of this arm, else a new measurement."""
    for results, arm in places:
        if any(gap.arm == arm.name for gap in results.gaps()):
            return resume_command(results.run.id)
    return f"sparkdash bench {run.arm(name).profile} --suite {run.suite_options}"


def _flags(filled: Mapping[tuple[str, CellKey], _Filled]) -> Iterator[ComparisonFlag]:
    """Flag arms whose figures come from another box, or over another way, than the newest ones."""
    used = {(arm, one.results.run.id): one.results.run for (arm, _), one in filled.items()}
    newest = max(used.values(), key=lambda one: one.created_at, default=None)
    if newest is not None:
        for (arm, _), run in used.items():
            yield from _differences(arm, run, newest)


def _differences(arm: str, run: Run, newest: Run) -> Iterator[ComparisonFlag]:
    for what, here, there in (
        ("The box", run.host.name, newest.host.name),
        ("The way", run.target, newest.target),
        ("The seed of the prompts", str(run.seed), str(newest.seed)),
    ):
        if here != there:
            text = f"{what} of run {run.id} differs from {newest.id}'s: {here or '-'}, not {there or '-'}."
            yield ComparisonFlag(refuses=False, arm=arm, text=text)
