"""Tables that a layout lists column by column, filled from measured and published figures.

A column is a template: `{decode 512/256/4} tok/s` is the row's decode rate at context 512, 256 tokens, four at once,
`{decode /256@PROFILE}` that of another profile at the row's context. Pure.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from sparkdash.bench.judge.judgement import ArmFigure
from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.report import arm_tables, blocks
from sparkdash.bench.report.arm_tables import TableSource
from sparkdash.bench.report.blocks import Block, Footnotes, Grid, Heading, TableCell, TextBlock, Tone
from sparkdash.bench.report.layout import TableLayout
from sparkdash.bench.results import Provenance
from sparkdash.bench.run import CellKey, Kind
from sparkdash.domain.profile import Published
from sparkdash.errors import AdmissionError
from sparkdash.units import duration

FIELD = re.compile(r"\{([a-z0-9_]+)(?: ([^{}]*))?\}")
RATES = ("decode", "e2e", "prefill", "aggregate")
"""Figures that are published as well as measured."""
_NO_FACTS = Provenance()


def filled_tables(
    source: TableSource,
    tables: Sequence[TableLayout],
    published: Mapping[str, Sequence[Published]],
    links: Mapping[str, float],
) -> Iterator[Block]:
    """Build each table of a layout; the commands that fill its blanks stand under it."""
    for table in tables:
        notes = Footnotes()
        rows = [RowFiller(source, {**table.given, **row}, notes, published, links) for row in table.rows]
        above = RowFiller(source, table.given, notes, published, links)
        cells = [[row.fill(template) for template in table.columns.values()] for row in rows]
        yield Heading(table.level, above.substitute(table.title)[0])
        yield from _lines(above, table.above)
        if table.columns:
            texts = tuple(tuple(TableCell(text or table.blank) for text in row) for row in cells)
            yield Grid(head=tuple(table.columns), rows=texts, notes=tuple(notes.texts))
        yield from _lines(above, table.below)
        yield from _missing(source, rows, cells)


def _missing(source: TableSource, rows: "Sequence[RowFiller]", cells: Sequence[Sequence[str]]) -> Iterator[Block]:
    """Tell the commands that fill the blank cells, with their time where this box knows it."""
    blank = [row for row, texts in zip(rows, cells, strict=True) if "" in texts]
    times = {one.command: one.seconds for one in source.report.filling}
    lines = []
    for command in dict.fromkeys(row.command for row in blank if row.command):
        seconds = times.get(command)
        time = "" if seconds is None else f", about {duration(seconds)}"
        lines.append(f"Missing{time}: `{command}`")
    if lines:
        yield TextBlock(tuple(lines), Tone.DIM)


def _lines(filler: "RowFiller", templates: Sequence[str]) -> Iterator[Block]:
    if told := tuple(text for one in templates if not _is_gap(text := filler.fill(one))):
        yield TextBlock(told)


def _is_gap(text: str) -> bool:
    return text.rstrip("⁰¹²³⁴⁵⁶⁷⁸⁹") in ("", blocks.DASH)


class RowFiller:
    """Fills the templates of one row; a template with a gap is that gap, blank or a dash with its note."""

    def __init__(
        self,
        source: TableSource,
        given: Mapping[str, str],
        notes: Footnotes,
        published: Mapping[str, Sequence[Published]],
        links: Mapping[str, float],
    ) -> None:
        self.source = source
        self.given = given
        self.notes = notes
        self.links = links
        self.all_published = published
        self.published = published.get(given.get("profile", ""), ())
        self.others_published = published.get(given.get("over", ""), ())
        self.profile = given.get("profile", "")
        arm = source.report.arm(source.arm(self.profile) or "")
        self.facts = (arm.provenance if arm else None) or _NO_FACTS

    @property
    def command(self) -> str | None:
        """Return the command that measures the row; None where nothing does."""
        suite = self.given.get("suite")
        if "command" in self.given:
            return self.given["command"]
        if not suite or not self.profile or self.source.impossible(self.profile):
            return None
        return f"sparkdash bench {self.profile} --suite {suite}"

    def substitute(self, template: str) -> tuple[str, list[str]]:
        """Return the text, and what stands in it for each field."""
        found: list[str] = []

        def told(match: re.Match[str]) -> str:
            name, (argument, _, profile) = match[1], (match[2] or "").partition("@")
            row = self._of(profile) if profile else self
            found.append(row.fill(row.given[name]) if name in row.given else _field(name)(row, argument))
            return found[-1]

        return FIELD.sub(told, template), found

    def _of(self, profile: str) -> "RowFiller":
        return RowFiller(self.source, {**self.given, "profile": profile}, self.notes, self.all_published, self.links)

    def fill(self, template: str) -> str:
        noted = len(self.notes.texts)
        text, found = self.substitute(template)
        gap = next((one for one in found if _is_gap(one)), None)
        if gap == "":  # nor are the notes of its other figures shown
            del self.notes.texts[noted:]
        return text if gap is None else gap

    def key(self, cell: str) -> CellKey | None:
        """Return the planned cell `[context]/output[/concurrency]`; by default the row's own."""
        context, *rest = (cell or self.given.get("cell", "0/0")).split("/")
        context, suite = context or self.given.get("context", ""), self.given.get("suite")
        if not context:
            return None
        wanted = (int(context), *map(int, rest), 1)[:3]
        plain = (one for one in self.source.report.planned() if not one.warm and not one.text)
        plain = (one for one in plain if suite in (None, one.suite))
        return next((one for one in plain if (one.context, one.output, one.concurrency) == wanted), None)

    def measured(self, metric: BenchMetric, cell: str) -> str:
        """Return the median with the marks of its notes."""
        if (key := self.key(cell)) is None:
            reason = self.source.impossible(self.profile)
            return blocks.DASH + self.notes.mark(f"cannot run: {reason}") if reason else ""
        return self.source.cell(self.profile, key, self.notes, metric).text

    def figure(self, profile: str, cell: str) -> ArmFigure | None:
        return self.source.figure(profile, key) if (key := self.key(cell)) else None

    def known(self, text: object | None) -> str:
        """Return the text of a fact of the launch: blank before the first launch, a dash where it is not told."""
        return str(text) if text else "" if self.facts is _NO_FACTS else blocks.DASH


def _field(name: str) -> Callable[[RowFiller, str], str]:
    if (found := FIELDS.get(name)) is None:
        raise AdmissionError(
            f"The layout names a field {{{name}}} that does not exist.",
            code="layout_invalid",
            hint=f"Fields: {', '.join(FIELDS)}; and the row's own texts.",
        )
    return found


def _metric(metric: BenchMetric) -> Callable[[RowFiller, str], str]:
    return lambda row, cell: row.measured(metric, cell)


def _samples(row: RowFiller, cell: str) -> str:
    """Return the number of requests that count; each has an end, though not each tells every figure."""
    key = row.key(cell)
    figure = row.source.figure(row.profile, key, BenchMetric.E2E) if key else None
    return str(figure.n) if figure and figure.n else ""


def _ratio(row: RowFiller, cell: str) -> float | None:
    """Return the ratio of medians over the profile `over`; None without both."""
    mine, theirs = row.figure(row.profile, cell), row.figure(row.given.get("over", ""), cell)
    return mine.median / theirs.median if mine and theirs and mine.median and theirs.median else None


def _gain(row: RowFiller, cell: str) -> str:
    """Return the change over the profile `over`; in brackets where it may not be claimed."""
    if row.given.get("over") == row.profile:
        return "—"
    if (ratio := _ratio(row, cell)) is None:
        return row.measured(row.source.metric, cell) and blocks.DASH
    figure = row.figure(row.profile, cell)
    is_judged = row.source.arm(row.given["over"]) == row.source.report.run.baseline
    if figure and is_judged and figure.verdict.claim.told and figure.verdict.delta is not None:
        return blocks.format_change(figure.verdict.delta)
    return f"({blocks.format_change(ratio - 1)})"


def _beyond(row: RowFiller, cell: str) -> str:
    """Return the change over the published rate of the profile `over`, in brackets: it is another box's."""
    mine, theirs = row.figure(row.profile, cell), _find_published(row.others_published, None, "")
    return f"({blocks.format_change(mine.median / theirs[1] - 1)})" if mine and mine.median and theirs else ""


def _published(row: RowFiller, words: str) -> str:
    """Return the published figure of the row's `workload`, else the first one: `17.0`, `57 to 60`, `355K tokens`.

    `words`: the figure's name, and another workload than the row's.
    """
    which, _, workload = words.partition(" ")
    if (found := _find_published(row.published, workload or row.given.get("workload"), which)) is None:
        return blocks.DASH
    name, value, upto = found
    return PUBLISHED[name](value) if name in PUBLISHED else f"{value:g}" + ("" if upto is None else f" to {upto:g}")


def _find_published(
    published: Sequence[Published], workload: str | None, which: str
) -> tuple[str, float, float | None] | None:
    """Find the name, the value and the upper end of a figure."""
    names = (which,) if which else (*(f"{rate}_tok_s" for rate in RATES), "tok_s")
    fitting = (one for one in published if workload in (None, one.workload))
    values = ((name, getattr(one, name), one.upto) for one in fitting for name in names)
    return next((found for found in values if found[1] is not None), None)


PUBLISHED: Mapping[str, Callable[[float], str]] = {
    "kv_tokens": lambda tokens: f"{blocks.tokens_text(int(tokens))} tokens",
    "prefix_hit_rate": blocks.format_percent,
    "math_score": blocks.format_percent,
    "start_s": duration,
}


def _date(row: RowFiller, _: str) -> str:
    arm, report = row.source.arm(row.profile), row.source.report
    nights = [one.at for one in report.sources if one.arm == arm] or [report.run.created_at]
    return f"{max(nights):%Y-%m-%d}" if arm else ""


def _config(row: RowFiller, _: str) -> str:
    """Return the flags of the start command with their values: `--tensor-parallel-size=2, --quantization=fp8`."""
    found: list[str] = []
    for word in row.facts.argv:
        if word.startswith("--"):
            found.append(word)
        elif found and "=" not in found[-1]:
            found[-1] += f"={shlex.quote(word)}"
    return row.known(", ".join(found))


def _users(row: RowFiller, _: str) -> str:
    if row.facts.kv_tokens is None:
        return row.known(None)
    return arm_tables.kv_cells(row.facts, row.notes)[1].text


def _prefix(row: RowFiller, _: str) -> str:
    arm, report = row.source.arm(row.profile), row.source.report
    rates = [one.rate for one in report.hits if one.arm == arm]
    return blocks.format_percent(rates[0]) if rates else "" if report.planned(Kind.PREFIX) else blocks.DASH


def _status(row: RowFiller, _: str) -> str:
    report, reason = row.source.report, row.source.impossible(row.profile)
    if reason:
        return "cannot run" + row.notes.mark(f"cannot run: {reason}")
    if row.facts is _NO_FACTS:
        return "not measured"
    missing = next((one for one in report.filling if one.arm == row.source.arm(row.profile)), None)
    if missing and not report.sources:
        return f"measuring, {missing.of - missing.cells} of {missing.of} cells"
    return "simulated" if report.simulated else "measured"


def _accepted(row: RowFiller, cell: str) -> str:
    """Return the share of drafted tokens that were accepted, by the engine's own counters."""
    arm, key = row.source.arm(row.profile), row.key(cell)
    found = next((one for one in row.source.report.speculation if (one.arm, one.key) == (arm, key)), None)
    if found is None or not found.accepted_at:
        return row.measured(row.source.metric, cell) and blocks.DASH
    return blocks.format_percent(sum(found.accepted_at) / len(found.accepted_at))


FIELDS: Mapping[str, Callable[[RowFiller, str], str]] = {
    **{metric.value: _metric(metric) for metric in BenchMetric},
    "n": _samples,
    "gain": _gain,
    "beyond": _beyond,
    "accepted": _accepted,
    "link": lambda row, which: f"{row.links[which]:.2f}" if which in row.links else "",
    "times": lambda row, cell: "" if (ratio := _ratio(row, cell)) is None else f"{ratio:.2f}x",
    "published": _published,
    "date": _date,
    "config": _config,
    "image": lambda row, _: row.known(row.facts.image),
    "context": lambda row, _: row.known(row.facts.context_limit and f"{row.facts.context_limit:,} tokens"),
    "weights": lambda row, _: row.known(row.facts.weights_gib and f"{row.facts.weights_gib:.2f} GiB"),
    "start": lambda row, _: row.known(row.facts.startup_s and f"about {duration(row.facts.startup_s)}"),
    "kv": lambda row, _: row.known(row.facts.kv_tokens and f"{blocks.tokens_text(row.facts.kv_tokens)} tokens"),
    "users": _users,
    "prefix": _prefix,
    "math": lambda row, _: arm_tables.math_share(row.source, row.profile),
    "score": lambda row, _: arm_tables.math_share(row.source, row.profile).strip(blocks.DASH) or "?%",
    "right": lambda row, _: arm_tables.math_share(row.source, row.profile).removesuffix("%"),
    "status": _status,
}
"""Names in a template, beside the texts of its row; figures take a cell, `published` a field of that name, and `link`
the queue pairs and the channel (`1/2`)."""
