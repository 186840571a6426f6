"""`sparkdash nodes bench`: measure the link to a node by the tools that both boxes have."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.nodes import MaybeNodeName, one_node
from sparkdash.cli.output import LiveLine, fit_table, print_json, print_note, print_text, terminal_width
from sparkdash.cli.parameters import AsJson
from sparkdash.units import DASH, KIB, MIB, number

if TYPE_CHECKING:
    from sparkdash.domain.node import Link, Node
    from sparkdash.nodes.link.bench import LinkMeasurement, LinkRun

HEAD = ("test", "from", "streams", "size", "Gb/s", "MB/s", "time")
ALIGN = "<<>>>>>"
LEAST = ("size", "MB/s")
"""Columns that a narrow terminal omits, first to last: MB/s repeats Gb/s."""


def bench(
    name: MaybeNodeName = None,
    nccl: Annotated[bool, typer.Option("--nccl", help="Also all_reduce_perf of nccl-tests; uses both GPUs.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=1, max=60, help="Time of each step.")] = 2.0,
    last: Annotated[bool, typer.Option("--last", help="Show the last kept run; measure nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure the link to the node NAME: rates and latency.

    Runs perftest (ib_write_lat, ib_write_bw, ib_send_bw) where the link has RDMA, iperf3 for TCP, and with --nccl
    all_reduce_perf of nccl-tests. A tool that is not on both boxes is told with what to install. The published figures
    stand beside the measured ones. Each run is kept in the state folder.

    \b
    Examples:
      sparkdash nodes bench
      sparkdash nodes bench spark2 --json
      sparkdash nodes bench spark2 --nccl
      sparkdash nodes bench --last
    """
    import asyncio

    node = one_node(name)
    if last:
        _print(_last(node.name), as_json)
        return
    line = LiveLine()
    try:
        run = asyncio.run(_measured(node, seconds, nccl, lambda what: line.draw(f"measuring: {what}", what)))
    finally:
        line.clear()
    if run.measurements:
        _keep(run)
    _print(run, as_json)


async def _measured(node: Node, seconds: float, nccl: bool, progress: Callable[[str], None]) -> LinkRun:
    from sparkdash import settings
    from sparkdash.nodes.link.bench import measure_link
    from sparkdash.nodes.link.boxes import open_boxes

    known = settings.load_settings()
    async with open_boxes((node,), known.runtime, str(known.hf_home.expanduser())) as boxes:
        (_, there), *_ = boxes.nodes
        return await measure_link(boxes.here, there, node, progress, seconds=seconds, nccl=nccl)


def _keep(run: LinkRun) -> None:
    """Keep the run; a full disk loses the file and not the figures."""
    from sparkdash.nodes.link.bench import keep_run

    try:
        path = keep_run(run)
    except OSError as error:
        print_note(f"The run could not be kept: {os.strerror(error.errno or 0)}.")
    else:
        print_note(f"Kept in {path}.")


def _last(node: str) -> LinkRun:
    from sparkdash.errors import AdmissionError
    from sparkdash.nodes.link.bench import kept_runs

    if not (runs := kept_runs(node)):
        raise AdmissionError(
            f"No measured link to {node} is kept.",
            code="no_link_run",
            hint=f"`sparkdash nodes bench {node}` measures it.",
        )
    return runs[-1]


def _print(run: LinkRun, as_json: bool) -> None:
    from sparkdash.nodes.link.bench import PUBLISHED_LINK_FIGURES, WHY_PUBLISHED_IS_LOW

    if as_json:
        published = {"figures": PUBLISHED_LINK_FIGURES, "note": WHY_PUBLISHED_IS_LOW}
        print_json({**run.model_dump(mode="json"), "published": published})
    else:
        print_text("\n".join(run_lines(run, terminal_width())))


def run_lines(run: LinkRun, columns: int) -> Iterator[str]:
    """Format a run for a terminal of so many columns, and the published figures beside it."""
    from sparkdash.domain.node import LOCAL
    from sparkdash.nodes.link.bench import WHY_PUBLISHED_IS_LOW

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
    from sparkdash.nodes.link.bench import PUBLISHED_LINK_FIGURES

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
    return run.facts[name].hostname if name in run.facts and name != run.node else name


def _end(link: Link | None) -> str:
    if link is None:
        return DASH
    hca = f" {link.hca}" if link.hca else ""
    mtu = f", MTU {link.mtu}" if link.mtu else ""
    return f"{link.interface}{hca} ({link.address}{mtu})"
