"""Estimate of a run's missing cells: number, time, and command.

Owns: the estimate, from this run's own pace. Must not know: how a run is measured.
Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from sparkdash.bench.report.report import MissingCells
from sparkdash.bench.results import Gap, Results
from sparkdash.bench.run import CellKey, PlannedCell


def estimate_missing(results: Results) -> tuple[MissingCells, ...]:
    """Return an estimate for each arm with gaps. An impossible arm has none."""
    by_arm: dict[str, list[Gap]] = defaultdict(list)
    for gap in results.gaps():
        by_arm[gap.arm].append(gap)
    places: dict[str, list[int]] = defaultdict(list)
    for index, slot in enumerate(results.run.order):
        places[slot.arm].append(index)
    paces = _paces(results)
    startup = [one.provenance.startup_s for one in results.launches if one.provenance.startup_s is not None]
    return tuple(
        MissingCells(
            arm=arm.name,
            cells=len(by_arm[arm.name]),
            of=sum(len(results.run.planned(index)) for index in places[arm.name]),
            launches=len(places[arm.name]),
            seconds=_seconds(by_arm[arm.name], paces, median(startup) if startup else None),
            command=resume_command(results.run.id),
        )
        for arm in results.run.arms
        if arm.impossible is None and by_arm[arm.name]
    )


def estimate_blank(merged: Results, arm: str, blank: Sequence[PlannedCell], command: str) -> MissingCells:
    """Return an estimate for the cells of merged runs that no run fills, in one launch."""
    gaps = [Gap(launch=0, arm=arm, cell=cell.key, reps=tuple(range(cell.reps))) for cell in blank]
    startup = [one.provenance.startup_s for one in merged.launches if one.provenance.startup_s is not None]
    seconds = _seconds(gaps, _paces(merged), median(startup) if startup else None)
    return MissingCells(arm=arm, cells=len(blank), of=len(merged.run.cells), seconds=seconds, command=command)


def resume_command(run: str) -> str:
    """Return the command that measures only the gaps of a run."""
    return f"sparkdash bench resume {run}"


def _paces(results: Results) -> dict[CellKey, float]:
    """Return the seconds per repetition of each cell that some launch finished."""
    reps = {cell.key: cell.reps for cell in results.run.cells}
    spent: dict[CellKey, list[float]] = defaultdict(list)
    for one in results.cells:
        if one.void is None and one.key in reps:
            spent[one.key].append((one.ended_at - one.started_at).total_seconds() / reps[one.key])
    return {key: median(times) for key, times in spent.items()}


def _seconds(gaps: list[Gap], paces: dict[CellKey, float], startup: float | None) -> float | None:
    """Return the seconds; None where a cell or the start of an engine was never timed."""
    if startup is None or any(gap.cell not in paces for gap in gaps):
        return None
    return startup * len({gap.launch for gap in gaps}) + sum(paces[gap.cell] * len(gap.reps) for gap in gaps)
