"""A profile over time: its runs by build, and whether the newest build looks slower than the one before.

An evening is one run of one build. Evenings are no experiment, so nothing is claimed: the newest build *looks* slower
or faster where the change exceeds what one evening cannot settle (RESOLUTION). Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import groupby

from sparkdash.bench.judge.metrics import BenchMetric, figures_by_launch
from sparkdash.bench.judge.stats import geomean
from sparkdash.bench.judge.verdict import RESOLUTION
from sparkdash.bench.report import blocks
from sparkdash.bench.report.assemble import assumed_cells
from sparkdash.bench.report.blocks import Block, CommandBlock, Grid, Heading, ReportPage, TableCell, TextBlock, Tone
from sparkdash.bench.report.comparability import WORK
from sparkdash.bench.report.page import SIMULATED
from sparkdash.bench.results import LaunchRecord, Provenance, Results
from sparkdash.bench.run import CellKey, Kind
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
    rates: tuple[CellRate, ...]


class Period(Frozen):
    """Successive evenings of one build, oldest first."""

    build: Build
    evenings: tuple[Evening, ...]

    def means(self) -> dict[WatchedCell, float]:
        """Return the geometric mean of each cell over the evenings."""
        found: dict[WatchedCell, list[float]] = defaultdict(list)
        for rate in (rate for evening in self.evenings for rate in evening.rates):
            found[rate.cell].append(rate.value)
        return {cell: geomean(values) for cell, values in found.items()}


class Outlook(StrEnum):
    """Weak statement about the newest build."""

    SLOWER = "looks slower"
    FASTER = "looks faster"
    STEADY = "is not shown to differ"
    UNKNOWN = "not known"


class CellChange(Frozen):
    """Cell that both builds measured."""

    cell: WatchedCell
    before: float
    now: float


class BuildChange(Frozen):
    """Newest build against the one before."""

    outlook: Outlook
    delta: float | None = None
    """Geometric mean over the common cells; None without one."""
    cells: tuple[CellChange, ...] = ()


class Watch(Frozen):
    """Figures of a profile over time, and what is to be said of its newest build."""

    profile: str
    metric: BenchMetric
    simulated: bool = False
    periods: tuple[Period, ...] = ()
    left_out: int = 0
    change: BuildChange | None = None
    """Newest build against the one before; None with one build."""


def watch_profile(runs: Iterable[Results], profile: str, metric: BenchMetric) -> Watch:
    """Group the evenings of a profile by build, and compare the newest build with the one before.

    Arms of a sweep do not count. Evenings with other work than the newest (thinking, temperature, tokenizer), of
    another box, or simulated among real ones are left out and counted.
    """
    found = sorted(
        ((evening, one.run, work) for one in runs for evening, work in _evenings(one, profile, metric)),
        key=lambda one: one[0].at,
    )
    if not found:
        return Watch(profile=profile, metric=metric)
    simulated = all(run.simulated for _, run, _ in found)
    same = [one for one in found if one[1].simulated is simulated]
    _, run, work = same[-1]
    kept = [evening for evening, other, its in same if other.host.name == run.host.name and _is_equal_work(its, work)]
    grouped = [tuple(ones) for _, ones in groupby(kept, key=lambda one: one.build)]
    periods = tuple(Period(build=ones[0].build, evenings=ones) for ones in grouped)
    return Watch(
        profile=profile,
        metric=metric,
        simulated=simulated,
        periods=periods,
        left_out=len(found) - len(kept),
        change=_compare(periods[-2], periods[-1], metric) if len(periods) > 1 else None,
    )


def _evenings(results: Results, profile: str, metric: BenchMetric) -> Iterator[tuple[Evening, Provenance]]:
    """Yield an evening for each build that ran in a run, with the last provenance of its launches."""
    arms = {arm.name for arm in results.run.arms if arm.profile == profile and not arm.parameters}
    by_build: dict[Build, list[LaunchRecord]] = defaultdict(list)
    for one in {one.index: one for one in results.launches if one.arm in arms}.values():
        by_build[Build(**{name: getattr(one.provenance, name) for name in Build.model_fields})].append(one)
    for build, ones in by_build.items():
        rates = tuple(_rates(results, arms, {one.index for one in ones}, metric))
        if rates:
            at = min(one.started_at for one in ones)
            yield Evening(run=results.run.id, at=at, build=build, rates=rates), ones[-1].provenance


def _rates(results: Results, arms: Iterable[str], launches: set[int], metric: BenchMetric) -> Iterator[CellRate]:
    """Yield a rate for each cell; decode rates that hang on an estimate are left out."""
    run = results.run
    unsure = {(one.arm, one.key) for one in assumed_cells(results)} if metric is BenchMetric.DECODE else set()
    for key in (cell.key for cell in run.cells if cell.key.kind is Kind.SPEED):
        sure = [figures_by_launch(results, arm, key, metric) for arm in arms if (arm, key) not in unsure]
        values = [geomean([*ones.values()]) for each in sure for launch, ones in each.items() if launch in launches]
        if values:
            cell = WatchedCell(suite=run.suite, suite_hash=run.suite_hash, seed=run.seed, target=run.target, key=key)
            yield CellRate(cell=cell, value=geomean(values))


def _is_equal_work(one: Provenance, other: Provenance) -> bool:
    """Whether nothing known of the work differs."""
    pairs = ((get(one), get(other)) for _, get in WORK)
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def _compare(old: Period, new: Period, metric: BenchMetric) -> BuildChange:
    before, now = old.means(), new.means()
    cells = tuple(CellChange(cell=one, before=before[one], now=now[one]) for one in now if one in before)
    if not cells:
        return BuildChange(outlook=Outlook.UNKNOWN)
    delta = geomean([one.now / one.before for one in cells]) - 1
    better = Outlook.FASTER if (delta > 0) != metric.less_is_better else Outlook.SLOWER
    return BuildChange(outlook=Outlook.STEADY if abs(delta) <= RESOLUTION else better, delta=delta, cells=cells)


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
    names = [name for name in Build.model_fields if len({getattr(one.build, name) for one in found.periods}) > 1]
    head = ("Evenings", "Runs", *(name.replace("_", " ").capitalize() for name in names))
    yield Grid(head=head, rows=tuple(_row(period, names) for period in found.periods))


def _row(period: Period, names: Sequence[str]) -> tuple[TableCell, ...]:
    first, last = (f"{period.evenings[at].at:%Y-%m-%d}" for at in (0, -1))
    days = first if first == last else f"{first} to {last}"
    values = (_short(getattr(period.build, name) or blocks.DASH) for name in names)
    return tuple(map(TableCell, (days, str(len(period.evenings)), *values)))


def _short(value: str) -> str:
    """Shorten a digest; the whole one stands in the way back."""
    return value.partition("sha256:")[2][:SHORT] or value


def _last_change(found: Watch) -> Iterator[Block]:
    change = found.change
    if change is None:
        yield TextBlock(("One build so far: nothing to compare it with.",))
        return
    yield TextBlock((_outlook_text(found, change),), TONES.get(change.outlook, Tone.PLAIN))
    if change.cells:
        head = ("Cell", "Suite", "Before", "Now", "Change")
        yield Grid(head=head, rows=tuple(_cell_row(one, found) for one in change.cells), right=True)


def _cell_row(one: CellChange, found: Watch) -> tuple[TableCell, ...]:
    before, now = (blocks.format_value(value, blocks.decimals(found.metric)) for value in (one.before, one.now))
    texts = (
        blocks.cell_name(one.cell.key),
        one.cell.suite,
        before,
        now,
        blocks.format_change(one.now / one.before - 1),
    )
    return tuple(map(TableCell, texts))


def _outlook_text(found: Watch, change: BuildChange) -> str:
    if change.delta is None:
        return "Not known whether it got slower: both builds have no cell in common (suite, seed, way)."
    before, now = (len(period.evenings) for period in found.periods[-2:])
    many = "1 cell" if len(change.cells) == 1 else f"{len(change.cells)} cells"
    told = f"The newest build {change.outlook}: ({blocks.format_change(change.delta)}) {found.metric.value} over {many}"
    evenings = f"{now} evening{'s' * (now != 1)} against {before}"
    return f"{told}; {evenings}. Only changes beyond {RESOLUTION:.0%} are mentioned."


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
