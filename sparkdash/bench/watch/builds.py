"""Evenings of a profile, grouped by the build that ran.

Owns: what a build is, which evenings belong together, which are left out. Must not know: how two builds compare.
Rule 1: an evening is one run of one build. Figures of equal prompts (suite hash, seed) on the same way are one cell.
Rule 2: evenings with other work than the newest (thinking, temperature, tokenizer), of another box, or simulated among
real ones are left out and counted.
Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby

from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch
from sparkdash.bench.judge.stats import geomean
from sparkdash.bench.records import LaunchRecord, Provenance
from sparkdash.bench.report.assumed_cells import assumed_cells
from sparkdash.bench.report.comparability import WORK
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey, Kind, Run
from sparkdash.domain.base import Frozen


class Build(Frozen):
    """Software that ran: what a pull, an update or an edit changes. None: unknown."""

    image: str | None = None
    image_digest: str | None = None
    engine_version: str | None = None
    model_revision: str | None = None
    driver: str | None = None
    kernel: str | None = None
    kv_dtype: str | None = None
    fingerprint: str | None = None
    """Fingerprint of the profile."""


class WatchedCell(Frozen):
    """Cell whose figures are comparable between evenings. Hashable."""

    suite: str
    suite_hash: str
    seed: int
    target: str
    key: CellKey


class CellRate(Frozen):
    """Geometric mean of a cell over the launches of an evening."""

    cell: WatchedCell
    value: float


class Evening(Frozen):
    """Figures of one build in one run."""

    run: str
    at: datetime
    build: Build
    launches: int
    rates: tuple[CellRate, ...]


class Period(Frozen):
    """Successive evenings of one build."""

    build: Build
    evenings: tuple[Evening, ...]
    """Oldest first."""


class WatchedEvenings(Frozen):
    """Periods of a profile, oldest first, with the number of evenings that were left out."""

    periods: tuple[Period, ...]
    simulated: bool
    left_out: int = 0


def watched_evenings(runs: Iterable[Results], profile: str, metric: BenchMetric) -> WatchedEvenings:
    """Group the evenings of a profile by build. Arms of a sweep do not count."""
    found = sorted(
        ((evening, one.run, work) for one in runs for evening, work in _evenings(one, profile, metric)),
        key=lambda one: one[0].at,
    )
    if not found:
        return WatchedEvenings(periods=(), simulated=False)
    simulated = all(run.simulated for _, run, _ in found)
    same = [one for one in found if one[1].simulated is simulated]
    _, run, work = same[-1]
    kept = [evening for evening, other, its in same if other.host.name == run.host.name and _is_equal_work(its, work)]
    periods = [tuple(ones) for _, ones in groupby(kept, key=lambda one: one.build)]
    return WatchedEvenings(
        periods=tuple(Period(build=ones[0].build, evenings=ones) for ones in periods),
        simulated=simulated,
        left_out=len(found) - len(kept),
    )


def _evenings(results: Results, profile: str, metric: BenchMetric) -> Iterator[tuple[Evening, Provenance]]:
    """Yield an evening for each build that ran in a run, with the last provenance of its launches."""
    arms = {arm.name for arm in results.run.arms if arm.profile == profile and not arm.parameters}
    launches = {one.index: one for one in results.launches if one.arm in arms}
    by_build: dict[Build, list[LaunchRecord]] = defaultdict(list)
    for one in launches.values():
        by_build[_build(one.provenance)].append(one)
    values = _values(results, arms, metric)
    for build, ones in by_build.items():
        mine = {one.index for one in ones}
        rates = tuple(_rates(results.run, values, mine))
        if rates:
            at = min(one.started_at for one in ones)
            evening = Evening(run=results.run.id, at=at, build=build, launches=len(ones), rates=rates)
            yield evening, ones[-1].provenance


def _values(results: Results, arms: Iterable[str], metric: BenchMetric) -> dict[CellKey, dict[int, float]]:
    """Return one figure by cell and launch; decode rates that hang on an estimate are left out."""
    unsure = {(one.arm, one.key) for one in assumed_cells(results)} if metric is BenchMetric.DECODE else set()
    found: dict[CellKey, dict[int, float]] = defaultdict(dict)
    for arm in arms:
        for cell in results.run.cells:
            if cell.key.kind is Kind.SPEED and (arm, cell.key) not in unsure:
                for launch, prompts in figures_by_launch(results, arm, cell.key, metric).items():
                    found[cell.key][launch] = geomean([*prompts.values()])
    return found


def _rates(run: Run, values: dict[CellKey, dict[int, float]], launches: set[int]) -> Iterator[CellRate]:
    for key, by_launch in values.items():
        mine = [value for launch, value in by_launch.items() if launch in launches]
        if mine:
            cell = WatchedCell(suite=run.suite, suite_hash=run.suite_hash, seed=run.seed, target=run.target, key=key)
            yield CellRate(cell=cell, value=geomean(mine))


def _build(told: Provenance) -> Build:
    return Build(**{name: getattr(told, name) for name in Build.model_fields})


def _is_equal_work(one: Provenance, other: Provenance) -> bool:
    """Whether nothing known of the work differs."""
    return not any(_differs(get(one), get(other)) for _, get in WORK)


def _differs(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


Named = tuple[str, Callable[[Build], str | None]]
NAMED: Sequence[Named] = (
    ("image", lambda one: one.image),
    ("image digest", lambda one: one.image_digest),
    ("engine version", lambda one: one.engine_version),
    ("model revision", lambda one: one.model_revision),
    ("driver", lambda one: one.driver),
    ("kernel", lambda one: one.kernel),
    ("KV cache's type", lambda one: one.kv_dtype),
    ("profile's fingerprint", lambda one: one.fingerprint),
)
"""Properties of a build in the words of a report."""
