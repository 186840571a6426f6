"""Page of a measured link: its figures, and the published ones beside them.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from sparkdash.cli.output.tables import fit_table
from sparkdash.domain.node import LOCAL, Link
from sparkdash.nodes.link.published import PUBLISHED_LINK_FIGURES, WHY_PUBLISHED_IS_LOW
from sparkdash.nodes.link.record import LinkMeasurement, LinkRun, LinkTool
from sparkdash.units import KIB, MIB, number

HEAD = ("test", "from", "streams", "size", "Gb/s", "MB/s", "time")
ALIGN = "<<>>>>>"
LEAST = ("size", "MB/s")
"""Columns that a narrow terminal omits, first to last: MB/s repeats Gb/s."""
STREAMS = {LinkTool.PERFTEST: "queue pairs", LinkTool.ALL_REDUCE: "ranks"}


def run_lines(run: LinkRun, columns: int) -> Iterator[str]:
    """Format a run for a terminal of so many columns."""
    yield f"{_box(run, LOCAL)} {_end(run.here)} and {_box(run, run.node)} {_end(run.there)}"
    tool = " ".join(word for word in (run.tool.value, run.version or "") if word)
    yield f"measured with {tool}" + (f", image of {run.profile}" if run.profile else "")
    if run.why:
        yield from wrap(run.why, columns)
    yield ""
    head = (*HEAD[:2], STREAMS.get(run.tool, "streams"), *HEAD[3:])
    lines, _ = fit_table(head, [_row(run, each) for each in run.measurements], ALIGN, LEAST, columns)
    yield from lines
    if run.tool is LinkTool.ALL_REDUCE:
        yield ""
        yield from wrap("Gb/s is the bus bandwidth by the formula of nccl-tests: size / time x 2 (n - 1) / n.", columns)
    yield ""
    yield "published"
    yield from _published()
    yield ""
    yield from wrap(WHY_PUBLISHED_IS_LOW, columns)


def _published() -> Iterator[str]:
    """Format each figure with its conditions, and its source below."""
    figures = [f"{each.value} {each.unit}" for each in PUBLISHED_LINK_FIGURES]
    first = max(map(len, figures)) + 2
    for figure, each in zip(figures, PUBLISHED_LINK_FIGURES, strict=True):
        yield f"{figure:>{first}}  {each.what}"
        yield f"{'':{first}}  {each.source}"


def _row(run: LinkRun, each: LinkMeasurement) -> tuple[str, ...]:
    what = each.what + (f" ({' + '.join(each.devices)})" if each.devices else "")
    return (
        what,
        _box(run, each.source),
        str(len(run.facts)) if run.tool is LinkTool.ALL_REDUCE else str(each.streams),
        _bytes(each.size),
        number(each.gbit_s, 2 if (each.gbit_s or 0) < 100 else 1),
        number(None if each.gbit_s is None else each.gbit_s * 1000 / 8),
        _latency(each),
    )


def _latency(each: LinkMeasurement) -> str:
    if each.time_us is not None:
        return f"{each.time_us:.0f} us"
    if each.latency_us is None:
        return "-"
    tail = "" if each.latency_p99_us is None else f" (p99 {each.latency_p99_us:.1f})"
    return f"{each.latency_us:.1f} us{tail}"


def _bytes(count: int | None) -> str:
    if count is None:
        return "-"
    if count >= MIB:
        return f"{count // MIB} MiB"
    return f"{count // KIB} KiB" if count >= KIB else f"{count} B"


def _box(run: LinkRun, name: str) -> str:
    return run.facts[name].hostname if name == LOCAL and name in run.facts else name


def _end(link: Link | None) -> str:
    if link is None:
        return "-"
    hca = f" {link.hca}" if link.hca else ""
    mtu = f", MTU {link.mtu}" if link.mtu else ""
    return f"{link.interface}{hca} ({link.address}{mtu})"
