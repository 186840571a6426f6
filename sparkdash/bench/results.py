"""Results of a run: which samples count, and which are still missing.

Owns: the rule of what counts. Must not know: files (run_folder.py), statistics over several samples.
Rule: a cell of a launch is atomic. Samples count once a valid CellRecord of the same launch and key follows them in the
file. A killed run therefore repeats the interrupted cell, and no finished one.
Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Self

from sparkdash.bench.records import CellRecord, LaunchRecord, RequestSample
from sparkdash.bench.run import CellKey, Run
from sparkdash.domain.base import Frozen

WARMING = "the engine was still warming up"


class Gap(Frozen):
    """Missing repetitions of one cell in one launch."""

    launch: int
    arm: str
    cell: CellKey
    reps: tuple[int, ...]


class Results(Frozen):
    """Run with the contents of its records file, in the file's order."""

    run: Run
    launches: tuple[LaunchRecord, ...] = ()
    cells: tuple[CellRecord, ...] = ()
    """Finished cells, void ones included."""
    samples: tuple[RequestSample, ...] = ()
    """Samples of finished cells. `void` marks those that do not count; a void cell passes on its reason."""
    damaged: tuple[int, ...] = ()
    """Numbers of unreadable lines (from 1). Their contents are gaps."""

    @cached_property
    def _good(self) -> dict[tuple[str, CellKey], list[RequestSample]]:
        found: dict[tuple[str, CellKey], list[RequestSample]] = defaultdict(list)
        for one in self.samples:
            if one.void is None:
                found[one.arm, one.cell].append(one)
        return found

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy as pydantic does, and derive again what depends on the samples."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("_good", None)
        return copied

    def good(self, arm: str, key: CellKey) -> Sequence[RequestSample]:
        """Return the samples that count, in the order of measuring."""
        return self._good.get((arm, key), ())

    def gaps(self) -> tuple[Gap, ...]:
        """Return the missing repetitions of cells in launch order; empty when the run is complete."""
        streams: dict[tuple[int, CellKey, int], set[int]] = defaultdict(set)
        for one in self.samples:
            if one.void is None:
                streams[one.launch, one.cell, one.rep].add(one.stream)
        found = []
        for index, slot in enumerate(self.run.order):
            for cell in self.run.planned(index):
                done = (len(streams.get((index, cell.key, rep), ())) for rep in range(cell.reps))
                if missing := tuple(rep for rep, here in enumerate(done) if here < cell.key.concurrency):
                    found.append(Gap(launch=index, arm=slot.arm, cell=cell.key, reps=missing))
        return tuple(found)


def gather(
    run: Run, records: Iterable[LaunchRecord | RequestSample | CellRecord], damaged: Sequence[int] = ()
) -> Results:
    """Build the results from records in the order of writing, by the module's rule."""
    launches: list[LaunchRecord] = []
    cells: list[CellRecord] = []
    samples: list[RequestSample] = []
    pending: dict[tuple[int, CellKey], list[RequestSample]] = defaultdict(list)
    for record in records:
        if isinstance(record, LaunchRecord):
            launches.append(record)
            pending.clear()
        elif isinstance(record, RequestSample):
            pending[record.launch, record.cell].append(record)
        else:
            closed = pending.pop((record.launch, record.key), [])
            cells.append(record)
            samples += _judged(record, closed)
    return Results(
        run=run, launches=tuple(launches), cells=tuple(cells), samples=tuple(samples), damaged=tuple(damaged)
    )


def _judged(cell: CellRecord, samples: Sequence[RequestSample]) -> list[RequestSample]:
    """Return the samples with the cell's own reasons applied."""
    reasons = [cell.void or (WARMING if at < cell.warming else None) for at in range(len(samples))]
    return [
        one.replace(void=reason) if reason and one.void is None else one
        for one, reason in zip(samples, reasons, strict=True)
    ]
