"""A run and what its file holds: which samples count, and what is still to be measured. Pure.

Owns: those two. Must not know: files (folder.py), statistics over several samples.
Rule: a cell of a launch is an atom. Samples count once a Cell of the same launch and key that is not void follows them in the
file; so a run that was killed measures the cell it was in again, and no finished one.
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
    """What is still to be measured of one cell in one launch."""

    launch: int
    arm: str
    cell: CellKey
    reps: tuple[int, ...]


class Results(Frozen):
    """A run and what its file holds, in the file's order."""

    run: Run
    launches: tuple[LaunchRecord, ...] = ()
    cells: tuple[CellRecord, ...] = ()
    """Those that are void too."""
    samples: tuple[RequestSample, ...] = ()
    """Of finished cells; `void` tells which do not count. Samples of a void cell carry its reason."""
    damaged: tuple[int, ...] = ()
    """Lines that could not be read (1 is the first): what they held is a gap."""

    @cached_property
    def _good(self) -> dict[tuple[str, CellKey], list[RequestSample]]:
        found: dict[tuple[str, CellKey], list[RequestSample]] = defaultdict(list)
        for one in self.samples:
            if one.void is None:
                found[one.arm, one.cell].append(one)
        return found

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, but what was derived from the samples is derived anew: a plain copy would keep it."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("_good", None)
        return copied

    def good(self, arm: str, key: CellKey) -> Sequence[RequestSample]:
        """The samples that count, in the order of measuring."""
        return self._good.get((arm, key), ())

    def gaps(self) -> tuple[Gap, ...]:
        """Cells x repetitions x launches that are not measured, in the order of launches; empty when the run is whole."""
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
    """The results that records in the order of writing amount to, by the rule above."""
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
    """Its samples, with what the cell says of them."""
    reasons = [cell.void or (WARMING if at < cell.warming else None) for at in range(len(samples))]
    return [
        one.replace(void=reason) if reason and one.void is None else one
        for one, reason in zip(samples, reasons, strict=True)
    ]
