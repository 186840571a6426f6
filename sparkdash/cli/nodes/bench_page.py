"""Page of a measured link: its figures, and the published ones beside them.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from sparkdash.cli.output import fit_table
from sparkdash.domain.node import LOCAL, Link
from sparkdash.nodes.link.bench import PUBLISHED_LINK_FIGURES, WHY_PUBLISHED_IS_LOW, LinkMeasurement, LinkRun
from sparkdash.units import DASH, KIB, MIB, number

HEAD = ("test", "from", "streams", "size", "Gb/s", "MB/s", "time")
ALIGN = "<<>>>>>"
LEAST = ("size", "MB/s")
"""Columns that a narrow terminal omits, first to last: MB/s repeats Gb/s."""


def run_lines(run: LinkRun, columns: int) -> Iterator[str]:
    """Format a run for a terminal of so many columns."""
    yield f"{_box(run, LOCAL)} {_end(run.here)} and {_box(run, run.node)} {_end(run.there)}"
    yield ""
    rows = [_row(run, each) for each in run.measurements]
    rows += [(tool.value, *[DASH] * (len(HEAD) - 1)) for tool in run.missing]
    lines, _ = fit_table(HEAD, rows, ALIGN, LEAST, columns)
    yield from lines
    if run.missing:
        yield ""
    for tool, why in run.missing.items():
        yield from wrap(f"{tool.value}: {why}", columns)
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
        str(each.streams),
        _bytes(each.size),
        number(each.gbit_s, 2 if (each.gbit_s or 0) < 100 else 1),
        number(None if each.gbit_s is None else each.gbit_s * 1000 / 8),
        _latency(each),
    )


def _latency(each: LinkMeasurement) -> str:
    if each.time_us is not None:
        return f"{each.time_us:.0f} us"
    if each.latency_us is None:
        return DASH
    tail = "" if each.latency_p99_us is None else f" (p99 {each.latency_p99_us:.1f})"
    return f"{each.latency_us:.1f} us{tail}"


def _bytes(count: int | None) -> str:
    if count is None:
        return DASH
    if count >= MIB:
        return f"{count // MIB} MiB"
    return f"{count // KIB} KiB" if count >= KIB else f"{count} B"


def _box(run: LinkRun, name: str) -> str:
    return run.facts[name].hostname if name == LOCAL and name in run.facts else name


def _end(link: Link | None) -> str:
    if link is None:
        return DASH
    hca = f" {link.hca}" if link.hca else ""
    mtu = f", MTU {link.mtu}" if link.mtu else ""
    return f"{link.interface}{hca} ({link.address}{mtu})"
