"""A profile over time: its figures by build, over all recorded runs, and whether the newest build looks slower.

An evening is one run of one build. Evenings are no experiment, so nothing is claimed: the newest build *looks* slower,
faster, or does not differ. Where builds have enough evenings (SPREAD_DF), their spread decides; else a change has to
exceed what one evening cannot settle (LARGE). Pure.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from statistics import fmean

from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch
from sparkdash.bench.judge.stats import ALPHA, geomean, t_quantile
from sparkdash.bench.judge.verdict import FLOOR, RESOLUTION
from sparkdash.bench.report import blocks
from sparkdash.bench.report.assemble import assumed_cells
from sparkdash.bench.report.blocks import (
    DASH,
    Block,
    CommandBlock,
    Grid,
    Heading,
    ReportPage,
    TableCell,
    TextBlock,
    Tone,
    decimals,
    format_change,
    format_value,
)
from sparkdash.bench.report.comparability import WORK
from sparkdash.bench.report.page import SIMULATED
from sparkdash.bench.results import LaunchRecord, Provenance, Results
from sparkdash.bench.run import CellKey, Kind, Run
from sparkdash.domain.base import Frozen

SPREAD_DF = 2
"""Evenings beyond one per build, from which the spread between evenings is known well enough."""
LARGE = RESOLUTION
"""Change that is mentioned without a known spread between evenings."""


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


NAMES = {
    "image": "image", "image_digest": "image digest", "engine_version": "engine version",
    "model_revision": "model revision", "driver": "driver", "kernel": "kernel", "kv_dtype": "KV cache's type",
    "fingerprint": "profile's fingerprint",
}  # fmt: skip


class WatchedCell(Frozen):
    """Cell whose figures are comparable between evenings: equal prompts on the same way. Hashable."""

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
    """Successive evenings of one build, oldest first."""

    build: Build
    evenings: tuple[Evening, ...]


class Outlook(StrEnum):
    """Weak statement about the newest build."""

    SLOWER = "looks slower"
    FASTER = "looks faster"
    STEADY = "not shown to differ"
    UNKNOWN = "not known"


class BuildProperty(Frozen):
    """Property of a build that changed. None: unknown."""

    name: str
    before: str | None
    now: str | None


class CellChange(Frozen):
    """Cell that both builds measured: geometric means over the evenings."""

    cell: WatchedCell
    before: float
    now: float


class BuildChange(Frozen):
    """Newest build against an earlier one."""

    outlook: Outlook
    delta: float | None = None
    """Geometric mean over the common cells; None without one."""
    low: float | None = None
    """Bounds of the 95 % interval with evenings as the unit; None: too few evenings."""
    high: float | None = None
    cells: tuple[CellChange, ...] = ()
    evenings: tuple[int, int] = (0, 0)
    """Evenings with common cells, earlier and newest build."""


class Watch(Frozen):
    """Figures of a profile over time, and what is to be said of its newest build."""

    profile: str
    metric: BenchMetric
    simulated: bool
    periods: tuple[Period, ...]
    left_out: int
    changes: tuple[BuildChange, ...] = ()
    """Newest build against each earlier period, in the order of `periods`."""
    changed: tuple[BuildProperty, ...] = ()
    """Differences between the newest build and the one before."""

    @property
    def last(self) -> BuildChange | None:
        """Newest build against the one before; None with one build."""
        return self.changes[-1] if self.changes else None


# --- evenings


def watch_profile(runs: Iterable[Results], profile: str, metric: BenchMetric) -> Watch:
    """Group the evenings of a profile by build, and compare the newest build with every earlier one.

    Arms of a sweep do not count. Evenings with other work than the newest (thinking, temperature, tokenizer), of
    another box, or simulated among real ones are left out and counted.
    """
    found = sorted(
        ((evening, one.run, work) for one in runs for evening, work in _evenings(one, profile, metric)),
        key=lambda one: one[0].at,
    )
    if not found:
        return Watch(profile=profile, metric=metric, simulated=False, periods=(), left_out=0)
    simulated = all(run.simulated for _, run, _ in found)
    same = [one for one in found if one[1].simulated is simulated]
    _, run, work = same[-1]
    kept = [evening for evening, other, its in same if other.host.name == run.host.name and _is_equal_work(its, work)]
    grouped = [tuple(ones) for _, ones in groupby(kept, key=lambda one: one.build)]
    periods = tuple(Period(build=ones[0].build, evenings=ones) for ones in grouped)
    *earlier, newest = periods
    spread = _evening_spread(periods)
    return Watch(
        profile=profile,
        metric=metric,
        simulated=simulated,
        periods=periods,
        left_out=len(found) - len(kept),
        changes=tuple(_compare(one, newest, metric, spread) for one in earlier),
        changed=tuple(_changed(earlier[-1].build, newest.build)) if earlier else (),
    )


def _evenings(results: Results, profile: str, metric: BenchMetric) -> Iterator[tuple[Evening, Provenance]]:
    """Yield an evening for each build that ran in a run, with the last provenance of its launches."""
    arms = {arm.name for arm in results.run.arms if arm.profile == profile and not arm.parameters}
    by_build: dict[Build, list[LaunchRecord]] = defaultdict(list)
    for one in {one.index: one for one in results.launches if one.arm in arms}.values():
        by_build[Build(**{name: getattr(one.provenance, name) for name in Build.model_fields})].append(one)
    values = _values(results, arms, metric)
    for build, ones in by_build.items():
        rates = tuple(_rates(results.run, values, {one.index for one in ones}))
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


def _is_equal_work(one: Provenance, other: Provenance) -> bool:
    """Whether nothing known of the work differs."""
    pairs = ((get(one), get(other)) for _, get in WORK)
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


# --- the newest build against earlier ones


def _compare(old: Period, new: Period, metric: BenchMetric, spread: tuple[float, int]) -> BuildChange:
    before, now = _by_cell(old.evenings), _by_cell(new.evenings)
    shared = [cell for cell in now if cell in before]
    if not shared:
        return BuildChange(outlook=Outlook.UNKNOWN)
    cells = tuple(
        CellChange(cell=one, before=math.exp(fmean(before[one])), now=math.exp(fmean(now[one]))) for one in shared
    )
    effect = fmean(fmean(now[one]) - fmean(before[one]) for one in shared)
    evenings = _count(old.evenings, shared), _count(new.evenings, shared)
    variance, df = spread
    limit = LARGE
    bounds: dict[str, float] = {}
    if df >= SPREAD_DF:
        half = t_quantile(1 - ALPHA / 2, df) * math.sqrt(variance * (1 / evenings[0] + 1 / evenings[1]))
        bounds = {"low": math.expm1(effect - half), "high": math.expm1(effect + half)}
        limit = max(half, FLOOR)
    return BuildChange(
        outlook=_outlook(effect, limit, metric), delta=math.expm1(effect), cells=cells, evenings=evenings, **bounds
    )


def _outlook(effect: float, limit: float, metric: BenchMetric) -> Outlook:
    if abs(effect) <= limit:
        return Outlook.STEADY
    return Outlook.FASTER if (effect > 0) != metric.less_is_better else Outlook.SLOWER


def _by_cell(evenings: Iterable[Evening]) -> dict[WatchedCell, list[float]]:
    found: dict[WatchedCell, list[float]] = defaultdict(list)
    for evening in evenings:
        for rate in evening.rates:
            found[rate.cell].append(math.log(rate.value))
    return found


def _count(evenings: Sequence[Evening], cells: Sequence[WatchedCell]) -> int:
    return sum(any(rate.cell in cells for rate in one.rates) for one in evenings)


def _evening_spread(periods: Sequence[Period]) -> tuple[float, int]:
    """Return the variance between evenings of one build, over all builds, and its df; (0, 0) without two of one."""
    squares, df = 0.0, 0
    for period in periods:
        known = {cell: fmean(logs) for cell, logs in _by_cell(period.evenings).items() if len(logs) > 1}
        remainders = list(_remainders(period.evenings, known))
        squares += sum(one**2 for one in remainders)
        df += max(0, len(remainders) - 1)
    return (squares / df, df) if df else (0.0, 0)


def _remainders(evenings: Sequence[Evening], means: Mapping[WatchedCell, float]) -> Iterator[float]:
    """Yield how far each evening lies from its build's mean, over the cells that several evenings have."""
    for evening in evenings:
        apart = [math.log(rate.value) - means[rate.cell] for rate in evening.rates if rate.cell in means]
        if apart:
            yield fmean(apart)


def _changed(before: Build, now: Build) -> Iterator[BuildProperty]:
    for key, name in NAMES.items():
        was, told = getattr(before, key), getattr(now, key)
        if was != told:
            yield BuildProperty(name=name, before=was, now=told)


# --- the page

COLUMNS = {
    "engine_version": "Engine", "model_revision": "Revision", "driver": "Driver", "kernel": "Kernel",
    "fingerprint": "Profile",
}  # fmt: skip
"""Properties that have a column where they differ between builds, and a line where they do not."""
DAY = len("2026-11-01")
TONES = {Outlook.SLOWER: Tone.WORSE, Outlook.FASTER: Tone.BETTER}
NO_VERDICT = "Evenings are no experiment, so nothing is claimed. `sparkdash ab` of two profiles measures a difference."
SHORT = 12


def watch_page(found: Watch) -> ReportPage:
    """Build the page of a profile with at least one evening."""
    return ReportPage((*_opening(found), *_last_change(found), *_way_back(found), TextBlock((NO_VERDICT,), Tone.DIM)))


def _opening(found: Watch) -> Iterator[Block]:
    yield Heading(1, f"{found.profile} over time")
    if found.simulated:
        yield TextBlock((SIMULATED,), Tone.WORSE)
    yield TextBlock((f"{found.metric.unit} is {found.metric.value}: {found.metric.definition}",), Tone.DIM)
    if found.left_out:
        told = "Left out: other work (thinking, temperature, tokenizer), another box, or simulated among real"
        yield TextBlock((f"{told}: {found.left_out}.",), Tone.DIM)
    builds = [period.build for period in found.periods]
    varied = [key for key in COLUMNS if len({getattr(one, key) for one in builds}) > 1]
    equal = [f"{COLUMNS[key]} {value}" for key in COLUMNS if key not in varied and (value := getattr(builds[-1], key))]
    if equal:
        yield TextBlock((f"The same throughout: {', '.join(equal)}",))
    head = ("Evenings", "Runs", "Image", *(COLUMNS[key] for key in varied), "Newest against it")
    changes = (*found.changes, None)
    rows = tuple(_row(period, change, varied) for period, change in zip(found.periods, changes, strict=True))
    yield Grid(head=head, rows=rows, widths=(DAY, 0, SHORT, *(0 for _ in varied), 0))


def _row(period: Period, change: BuildChange | None, columns: Sequence[str]) -> tuple[TableCell, ...]:
    first, last = (f"{period.evenings[at].at:%Y-%m-%d}" for at in (0, -1))
    days = first if first == last else f"{first} to {last}"
    values = ((getattr(period.build, key) or DASH)[:SHORT] for key in columns)
    texts = (days, str(len(period.evenings)), _digest(period.build), *values)
    newest = TableCell("newest")
    if change is not None:
        newest = TableCell(_change_text(change), TONES.get(change.outlook, Tone.DIM))
    return (*map(TableCell, texts), newest)


def _digest(build: Build) -> str:
    """Format the start of the image's digest; without one its name."""
    if build.image_digest is None:
        return build.image or DASH
    return build.image_digest.rpartition("@")[2].removeprefix("sha256:")[:SHORT]


def _short(value: str | None) -> str:
    """Shorten a digest; the whole one stands in the way back."""
    return DASH if value is None else re.sub(r"(sha256:[0-9a-f]{12})[0-9a-f]+", r"\1", value)


def _change_text(change: BuildChange) -> str:
    """Format a change with its interval: `-4.1% [-5.0, -3.2]`."""
    if change.delta is None:
        return DASH
    if change.low is None or change.high is None:
        return f"({format_change(change.delta)})"
    return f"{format_change(change.delta)} [{100 * change.low:.1f}, {100 * change.high:.1f}]"


def _last_change(found: Watch) -> Iterator[Block]:
    change = found.last
    if change is None:
        yield TextBlock(("One build so far: nothing to compare it with.",))
        yield _figures(found)
        return
    yield Heading(2, "What changed last")
    rows = tuple(tuple(map(TableCell, (one.name, _short(one.before), _short(one.now)))) for one in found.changed)
    yield Grid(head=("What", "Before", "Now"), rows=rows)
    yield TextBlock((_outlook_text(found, change),), TONES.get(change.outlook, Tone.PLAIN))
    if change.cells:
        head = ("Cell", "Suite", "Before", "Now", "Change")
        yield Grid(head=head, rows=tuple(_cell_row(one, found) for one in change.cells), right=True)


def _figures(found: Watch) -> Grid:
    places, evening = decimals(found.metric), found.periods[-1].evenings[-1]
    rows = ((blocks.cell_name(one.cell.key), one.cell.suite, format_value(one.value, places)) for one in evening.rates)
    return Grid(head=("Cell", "Suite", found.metric.value), rows=tuple(tuple(map(TableCell, row)) for row in rows))


def _cell_row(one: CellChange, found: Watch) -> tuple[TableCell, ...]:
    before, now = (format_value(value, decimals(found.metric)) for value in (one.before, one.now))
    texts = (blocks.cell_name(one.cell.key), one.cell.suite, before, now, format_change(one.now / one.before - 1))
    return tuple(map(TableCell, texts))


def _outlook_text(found: Watch, change: BuildChange) -> str:
    if change.outlook is Outlook.UNKNOWN:
        return "Not known whether it got slower: both builds have no cell in common (suite, seed, way)."
    before, now = change.evenings
    many = "1 cell" if len(change.cells) == 1 else f"{len(change.cells)} cells"
    verb = "is not shown to differ" if change.outlook is Outlook.STEADY else change.outlook
    told = f"The newest build {verb}: {_change_text(change)} {found.metric.value} over {many}"
    evenings = f"{now} evening{'s' * (now != 1)} against {before}"
    if change.low is None:
        return f"{told}; {evenings}. Too few evenings for an interval: only changes beyond {LARGE:.0%} are mentioned."
    return f"{told}; {evenings}, by the spread between evenings of equal builds."


def _way_back(found: Watch) -> Iterator[Block]:
    """Show what a profile needs to run the build before; nothing without a change of image or revision."""
    if len(found.periods) < 2:
        return
    before, now = (period.build for period in found.periods[-2:])
    lines = []
    if before.image and (before.image, before.image_digest) != (now.image, now.image_digest):
        lines.append(f"image: {pinned_image(before)}")
    if before.model_revision and before.model_revision != now.model_revision:
        lines.append(f"revision: {before.model_revision}    # of the model")
    if lines:
        yield Heading(2, "To go back")
        yield TextBlock(("Set this in the profile, or in a copy of it to measure both with `sparkdash ab`:",))
        yield CommandBlock(tuple(lines))


def pinned_image(build: Build) -> str:
    """Return the image by its digest: `registry/name@sha256:...`; by its id where it was built on the box."""
    image, digest = build.image or "", build.image_digest
    if digest is None:
        return image
    if "@" in digest:
        return digest
    if not digest.startswith("sha256:"):
        return digest
    name = image.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition(':')[0]}@{digest}"
