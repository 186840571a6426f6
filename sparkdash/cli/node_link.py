"""`sparkdash nodes copy` and `nodes bench`: a profile's files to another box, and the speed of the link."""

from __future__ import annotations

import os
from collections.abc import Callable
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli import output
from sparkdash.cli.nodes import MaybeNodeName, complete_node, one_node
from sparkdash.cli.parameters import AsJson, ProfileName
from sparkdash.errors import AdmissionError, HostError
from sparkdash.units import DASH, KIB, MIB, number, percent, size

if TYPE_CHECKING:
    from sparkdash.domain.images import CopyItem, CopyPlan, CopyProgress
    from sparkdash.domain.node import Link, Node
    from sparkdash.domain.profile import Profile
    from sparkdash.domain.state import Snapshot
    from sparkdash.nodes.link_bench import LinkMeasurement, LinkRun
    from sparkdash.nodes.shipping.shipper import NodeShipper

To = Annotated[
    str | None, typer.Option("--to", metavar="NODE", help="The node; else the only one.", autocompletion=complete_node)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be sent.")]
BAR = 20


def copy(
    profile: ProfileName,
    to: To = None,
    image_only: Annotated[bool, typer.Option("--image-only", help="Do not copy the weights.")] = False,
    weights_only: Annotated[bool, typer.Option("--weights-only", help="Do not copy the image.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Copy the image and the weights of a profile to another box.

    Weights go by rsync, which both boxes need, and images by podman. What is there and equal is skipped. The bytes go
    over the fast link where ssh answers there. Interrupted weights go on where they ended, with the same command.
    Engines keep running. A swap copies what is missing by itself; this command does it beforehand. With --json: one
    document per step of progress.

    \b
    Examples:
      sparkdash nodes copy qwen3-235b
      sparkdash nodes copy qwen3-235b --to spark2 --dry-run
      sparkdash nodes copy qwen3-235b --weights-only
    """
    import asyncio

    if image_only and weights_only:
        raise typer.BadParameter("--image-only and --weights-only together leave nothing to copy.")
    chosen, world = _profile(profile)
    node = one_node(to).name
    shipper = _shipper(world)
    work = _copied(shipper, chosen, node, image=not weights_only, weights=not image_only, as_json=as_json, dry=dry_run)
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        output.print_note(
            "Interrupted. Weights that arrived are kept there: the same command goes on where this one ended."
        )
        raise


def _profile(name: str) -> tuple[Profile, Snapshot | None]:
    from sparkdash.cli.local import find_profile, on_this_box

    profile, world = find_profile(name)
    if world is not None and not on_this_box(world):
        raise HostError(
            f"The daemon runs on {world.daemon.host}, so its files must be copied from there.",
            code="other_box",
            hint=f"Run `sparkdash nodes copy {name}` on {world.daemon.host}.",
        )
    if why := profile.fetches_nothing:
        raise AdmissionError(f"There is nothing to copy for {profile.name}: {why}.", code="nothing_to_copy")
    return profile, world


def _shipper(world: Snapshot | None) -> NodeShipper:
    from sparkdash.nodes.shipping.shipper import make_shipper
    from sparkdash.settings import load_settings

    def fast_address(node: str) -> str | None:
        state = world.nodes.get(node) if world else None
        links = state.facts.links if state and state.facts else ()
        return next((link.address for link in links if state and link.interface == state.link), None)

    return make_shipper(load_settings(), fast_address)


async def _copied(
    shipper: NodeShipper, profile: Profile, node: str, *, image: bool, weights: bool, as_json: bool, dry: bool
) -> None:
    from contextlib import aclosing

    show = _Shown(as_json)
    plan = await shipper.plan(profile, node, image=image, weights=weights, on_progress=show.step)
    show.line.clear()
    if dry:
        _print_plan(plan, as_json)
        return
    if not plan.missing and not as_json:
        output.print_text(f"{node} has all that {profile.name} needs, {size(sum(item.bytes for item in plan.items))}.")
    for item in plan.missing:
        if item.replaces and not as_json:
            output.print_note(
                f"{node} has another image under the name {item.name} ({item.replaces[:12]}): it is replaced."
            )
    async with aclosing(shipper.copy(profile, plan)) as reports:
        async for report in reports:
            show.step(report)
    show.line.clear()
    if as_json and not plan.missing:
        output.print_json_line({"profile": plan.profile, "node": node, "missing_bytes": 0, "done": True})


def _print_plan(plan: CopyPlan, as_json: bool) -> None:
    if as_json:
        output.print_json({**plan.model_dump(mode="json"), "missing_bytes": plan.missing_bytes})
        return
    rows = [(item.kind.value, item.name, size(item.bytes) if item.bytes else DASH, _fate(item)) for item in plan.items]
    output.print_table(("needs", "which", "size", f"to {plan.node}"), rows, "<<><")


def _fate(item: CopyItem) -> str:
    if not item.here:
        return "on neither box"
    if not item.missing_bytes:
        return "there"
    instead = f", in place of {item.replaces[:12]}" if item.replaces else ""
    return f"sends {size(item.missing_bytes)}{instead}"


class _Shown:
    """Progress: a line redrawn in place, or JSON documents."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.line = output.LiveLine()
        self._last: tuple[object, ...] = ()

    def step(self, report: CopyProgress) -> None:
        from sparkdash.domain.phrases import copied_text, copy_line, copy_share

        share = copy_share(report)
        now = (report.name, report.step, report.done, None if share is None else int(100 * share))
        if self._as_json:
            if now != self._last:
                output.print_json_line(report)
        elif report.done:
            self.line.clear()
            output.print_text(copied_text(report))
        else:
            full = int(BAR * (share or 0.0))
            bar = f"{'█' * full}{'░' * (BAR - full)}"
            tenth = f" {percent(int(10 * share) / 10)}" if share is not None else ""
            words = copy_line(report)
            self.line.draw(f"{report.name}  {bar}  {words}", f"{report.name}: {report.step}{tenth}")
        self._last = now


HEAD = ("test", "from", "streams", "size", "Gb/s", "MB/s", "time")
ALIGN = "<<>>>>>"
LEAST = ("size", "MB/s")
"""Columns that a narrow terminal omits, first to last: MB/s repeats Gb/s."""


def bench(
    name: MaybeNodeName = None,
    nccl: Annotated[bool, typer.Option("--nccl", help="Also all_reduce_perf of nccl-tests; uses both GPUs.")] = False,
    seconds: Annotated[float, typer.Option("--seconds", min=1, max=60, help="Time of each step.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Measure the link to the node NAME: rates and latency.

    Runs perftest (ib_write_lat, ib_write_bw, ib_send_bw) where the link has RDMA, iperf3 for TCP, and with --nccl
    all_reduce_perf of nccl-tests. A tool that is not on both boxes is told with what to install. Each run
    is kept in the state folder.

    \b
    Examples:
      sparkdash nodes bench
      sparkdash nodes bench spark2 --json
      sparkdash nodes bench spark2 --nccl
    """
    import asyncio

    node = one_node(name)
    line = output.LiveLine()
    try:
        run = asyncio.run(_measured(node, seconds, nccl, lambda what: line.draw(f"measuring: {what}", what)))
    finally:
        line.clear()
    if run.measurements:
        _keep(run)
    print_run(run, as_json=as_json)


async def _measured(node: Node, seconds: float, nccl: bool, progress: Callable[[str], None]) -> LinkRun:
    from sparkdash import settings
    from sparkdash.nodes.boxes import open_boxes
    from sparkdash.nodes.link_bench import measure_link

    known = settings.load_settings()
    async with open_boxes((node,), known.runtime, str(known.hf_home.expanduser())) as (here, [(_, there)]):
        return await measure_link(here, there, node, progress, seconds=seconds, nccl=nccl)


def _keep(run: LinkRun) -> None:
    """Keep the run; a full disk loses the file and not the figures."""
    from sparkdash.nodes.link_bench import keep_run

    try:
        path = keep_run(run)
    except OSError as error:
        output.print_note(f"The run could not be kept: {os.strerror(error.errno or 0)}.")
    else:
        output.print_note(f"Kept in {path}.")


def print_run(run: LinkRun, *, as_json: bool = False) -> None:
    from sparkdash.domain.node import LOCAL

    if as_json:
        return output.print_json(run)
    output.print_text(f"{_box(run, LOCAL)} {_end(run.here)} and {_box(run, run.node)} {_end(run.there)}\n")
    rows = [_row(run, each) for each in run.measurements]
    rows += [(tool.value, *[DASH] * (len(HEAD) - 1)) for tool in run.missing]
    output.print_table(HEAD, rows, ALIGN, LEAST)
    for tool, why in run.missing.items():
        output.print_text("\n" + "\n".join(wrap(f"{tool.value}: {why}", output.terminal_width())))
    return None


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
