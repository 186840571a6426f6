"""`sparkdash nodes bench`: measure the link to a node by the tools that both boxes have."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.nodes.known import MaybeNodeName, one_node
from sparkdash.cli.output import LiveLine, print_json, print_note, print_text, terminal_width
from sparkdash.cli.parameters import AsJson

if TYPE_CHECKING:
    from sparkdash.domain.node import Node
    from sparkdash.nodes.link.bench import LinkRun


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
    from sparkdash.cli.nodes.bench_page import run_lines
    from sparkdash.nodes.link.bench import PUBLISHED_LINK_FIGURES, WHY_PUBLISHED_IS_LOW

    if as_json:
        published = {"figures": PUBLISHED_LINK_FIGURES, "note": WHY_PUBLISHED_IS_LOW}
        print_json({**run.model_dump(mode="json"), "published": published})
    else:
        print_text("\n".join(run_lines(run, terminal_width())))
