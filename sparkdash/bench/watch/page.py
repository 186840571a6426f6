"""Page of the regression watch: builds over time, what changed last, and the way back.

Owns: its words and tables. Must not know: the forms, how builds compare.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from sparkdash.bench.report import cell_names
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
from sparkdash.bench.report.page import SIMULATED
from sparkdash.bench.watch.builds import Build, Period
from sparkdash.bench.watch.regression import LARGE, BuildChange, CellChange, Outlook, Watch

Column = tuple[str, Callable[[Build], str | None]]
COLUMNS: tuple[Column, ...] = (
    ("Engine", lambda one: one.engine_version),
    ("Revision", lambda one: one.model_revision),
    ("Driver", lambda one: one.driver),
    ("Kernel", lambda one: one.kernel),
    ("Profile", lambda one: one.fingerprint),
)
"""Properties that have a column where they differ between builds, and a line where they do not."""
DAY = len("2026-11-01")
TONES = {Outlook.SLOWER: Tone.WORSE, Outlook.FASTER: Tone.BETTER}
NO_VERDICT = "Evenings are no experiment, so nothing is claimed. `sparkdash ab` of two profiles measures a difference."
SHORT = 12
"""Characters of a digest in a table."""


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
    varied = [column for column in COLUMNS if len({column[1](one) for one in builds}) > 1]
    equal = [f"{name} {value}" for name, get in COLUMNS if (name, get) not in varied and (value := get(builds[-1]))]
    if equal:
        yield TextBlock((f"The same throughout: {', '.join(equal)}",))
    head = ("Evenings", "Runs", "Image", *(name for name, _ in varied), "Newest against it")
    changes = (*found.changes, None)
    rows = tuple(_row(period, change, varied) for period, change in zip(found.periods, changes, strict=True))
    yield Grid(head=head, rows=rows, widths=(DAY, 0, SHORT, *(0 for _ in varied), 0))


def _row(period: Period, change: BuildChange | None, columns: Sequence[Column]) -> tuple[TableCell, ...]:
    first, last = (f"{period.evenings[at].at:%Y-%m-%d}" for at in (0, -1))
    days = first if first == last else f"{first} to {last}"
    values = ((get(period.build) or DASH)[:SHORT] for _, get in columns)
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
    """Build the table of the newest evening's figures."""
    places, evening = decimals(found.metric), found.periods[-1].evenings[-1]
    rows = (
        (cell_names.cell_name(one.cell.key), one.cell.suite, format_value(one.value, places)) for one in evening.rates
    )
    return Grid(head=("Cell", "Suite", found.metric.value), rows=tuple(tuple(map(TableCell, row)) for row in rows))


def _cell_row(one: CellChange, found: Watch) -> tuple[TableCell, ...]:
    before, now = (format_value(value, decimals(found.metric)) for value in (one.before, one.now))
    texts = (cell_names.cell_name(one.cell.key), one.cell.suite, before, now, format_change(one.delta))
    return tuple(map(TableCell, texts))


def _outlook_text(found: Watch, change: BuildChange) -> str:
    """Say what the newest build looks like, and on what grounds."""
    if change.outlook is Outlook.UNKNOWN:
        return "Not known whether it got slower: both builds have no cell in common (suite, seed, way)."
    before, now = change.evenings
    many = "1 cell" if len(change.cells) == 1 else f"{len(change.cells)} cells"
    told = f"The newest build {_verb(change.outlook)}: {_change_text(change)} {found.metric.value} over {many}"
    evenings = f"{now} evening{'s' * (now != 1)} against {before}"
    if change.low is None:
        return f"{told}; {evenings}. Too few evenings for an interval: only changes beyond {LARGE:.0%} are mentioned."
    return f"{told}; {evenings}, by the spread between evenings of equal builds."


def _verb(outlook: Outlook) -> str:
    return "is not shown to differ" if outlook is Outlook.STEADY else str(outlook)


def _way_back(found: Watch) -> Iterator[Block]:
    """Show what a profile needs to run the build before; nothing without a change of image or revision."""
    before, now = found.before, found.periods[-1].build
    if before is None:
        return
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
