"""Measurement of the link between this box and a node by perftest, iperf3 and nccl-tests, where both boxes have them.

A tool that is missing or fails is told with the reason; the others still measure. Every program ends by itself within
LIMIT_S, so nothing stays on a box when the link breaks.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from sparkdash import paths
from sparkdash.domain.base import Frozen
from sparkdash.domain.node import Link, Node, NodeFacts
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.nodes.boxes import Box
from sparkdash.nodes.programs import NOT_FOUND
from sparkdash.nodes.shared_links import SharedLink, shared_links
from sparkdash.paths import read_small_text


class LinkTool(StrEnum):
    """Program that measures."""

    PERFTEST = "perftest"
    IPERF3 = "iperf3"
    NCCL_TESTS = "nccl-tests"


class LinkMeasurement(Frozen):
    """Figure of a link: a rate or a latency."""

    tool: LinkTool
    what: str
    """Test in words, such as `ib_write_bw` or `iperf3, TCP`."""
    source: str
    target: str
    streams: int = 1
    """TCP streams, or queue pairs per device."""
    devices: tuple[str, ...] = ()
    size: int | None = None
    """Bytes of one message."""
    gbit_s: float | None = None
    """Rate in 10^9 bits per second, of all devices together."""
    each_gbit_s: tuple[float, ...] = ()
    latency_us: float | None = None
    """Median time of one message, one way."""
    latency_p99_us: float | None = None
    time_us: float | None = None
    """Mean time of one collective."""


class LinkRun(Frozen):
    """Measurements of one run, with the facts of both boxes."""

    at: float
    node: str
    here: Link | None = None
    there: Link | None = None
    facts: dict[str, NodeFacts] = {}
    measurements: tuple[LinkMeasurement, ...] = ()
    missing: dict[LinkTool, str] = {}
    """Reason of each tool that gave no figures, with what to install."""


def link_runs_dir() -> Path:
    return paths.state_dir() / "links"


def keep_run(run: LinkRun) -> Path:
    """Write a run into a file of its own; return its path. Raises OSError."""
    place = link_runs_dir()
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{datetime.fromtimestamp(run.at, UTC):%Y%m%d-%H%M%S}-{run.node}.json"
    path.write_text(run.model_dump_json(indent=2) + "\n", "utf-8")
    return path


def channel_rates() -> dict[str, float]:
    """Return Gb/s of ib_write_bw by queue pairs and channel, of the newest run: `1/1`, `1/2`, and `1` for all."""
    newest = max(link_runs_dir().glob("*.json"), default=None)
    try:
        run = LinkRun.model_validate_json(read_small_text(newest)) if newest else None
    except (OSError, ValueError):
        run = None
    found: dict[str, float] = {}
    for one in run.measurements if run else ():
        if one.what == WRITE_BW and one.gbit_s is not None:
            found[f"{one.streams}"] = one.gbit_s
            found |= {f"{one.streams}/{at}": rate for at, rate in enumerate(one.each_gbit_s or (one.gbit_s,), 1)}
    return found


SECONDS = 2.0
STREAMS = (1, 4, 8)
"""TCP streams, and queue pairs of an RDMA device."""
PORTS = (20000, 32000)
"""Ports below the kernel's ephemeral range, from which one is drawn for each step."""
LIMIT_S = 15
"""Seconds beside the measuring after which `timeout` ends a program: a server without its client waits for ever."""
NCCL_LIMIT_S = 120
TRIES, APART_S = 20, 0.25
"""Attempts of a client, which may come before its server listens, and their distance."""
WRITE_BW, SEND_BW, WRITE_LAT = "ib_write_bw", "ib_send_bw", "ib_write_lat"
NCCL = """\
program=$(command -v all_reduce_perf || ls "$HOME/nccl-tests/build/all_reduce_perf" 2>/dev/null) || exit 127
command -v mpirun >/dev/null || exit 127
exec mpirun -np 2 -H "$1:1,$2:1" --mca btl_tcp_if_include "$3" -x NCCL_SOCKET_IFNAME="$3" \
  "$program" -b 16K -e 256M -f 16 -g 1
"""
"""Shell script with both addresses on the link and the interface; 256 MiB are room beside a loaded model."""
INSTALL = {
    LinkTool.PERFTEST: "`sudo apt install perftest`",
    LinkTool.IPERF3: "`sudo apt install iperf3`",
    LinkTool.NCCL_TESTS: (
        "`sudo apt install openmpi-bin`, and build github.com/NVIDIA/nccl-tests with MPI=1 in the home folder"
    ),
}
_NOT_YET = ("Couldn't connect to", "Unable to open file descriptor for socket connection", "Connection refused")
_NOISE = re.compile(r"^[-* ]*$|Conflicting CPU frequency|Waiting for client|^scnt=")

Progress = Callable[[str], None]


class NotMeasured(Exception):  # noqa: N818 - becomes a line of the page
    """Reason why a tool gave no figures."""


class LinkPair(NamedTuple):
    """Both boxes, this one first, with the links that they share, the best first."""

    here: Box
    there: Box
    links: tuple[SharedLink, ...]


async def measure_link(
    here: Box, there: Box, node: Node, progress: Progress, *, seconds: float = SECONDS, nccl: bool = False
) -> LinkRun:
    """Measure the link by every tool that both boxes have; `nccl`: also by nccl-tests, which use the GPUs.

    Raises:
        HostError: no_common_link, node_unreachable.
    """
    pair = LinkPair(here, there, _links_of(here, there, node))
    best, at = pair.links[0], time.time()
    tools: dict[LinkTool, Callable[[], Awaitable[list[LinkMeasurement]]]] = {
        LinkTool.PERFTEST: lambda: _perftest(pair, seconds, progress),
        LinkTool.IPERF3: lambda: _iperf3(pair, seconds, progress),
    }
    if nccl:
        tools[LinkTool.NCCL_TESTS] = lambda: _nccl_tests(pair, progress)
    found: list[LinkMeasurement] = []
    missing: dict[LinkTool, str] = {}
    for tool, measure in tools.items():
        try:
            found += await measure()
        except (NotMeasured, HostError) as error:
            missing[tool] = str(error)
    facts = {box.name: box.known() for box in (here, there)}
    return LinkRun(
        at=at, node=node.name, here=best.here, there=best.there, facts=facts, measurements=tuple(found), missing=missing
    )


def _links_of(here: Box, there: Box, node: Node) -> tuple[SharedLink, ...]:
    """Links that are up between both boxes, the best first."""
    found = shared_links(here.known(), there.known(), node.address, node.interface)
    up = tuple(link for link in found if link.up)
    if not up:
        raise HostError(
            f"{here.shown} and {there.shown} share no network that is up.",
            code="no_common_link",
            hint=f"`sparkdash doctor --node {node.name}` shows the interfaces and what to do.",
        )
    return up


async def _perftest(pair: LinkPair, seconds: float, progress: Progress) -> list[LinkMeasurement]:
    """Measure latency, writes with one and several queue pairs, sends, and all devices of the link at once."""
    rdma = [link for link in pair.links if link.here.hca and link.there.hca]
    if not rdma:
        raise NotMeasured("The link has no RDMA device on both ends.")
    await _require(pair, LinkTool.PERFTEST, (WRITE_BW, "--version"))
    steps = [(WRITE_LAT, 1, rdma[:1]), *((WRITE_BW, count, rdma[:1]) for count in STREAMS), (SEND_BW, 4, rdma[:1])]
    steps += [(WRITE_BW, 1, rdma), (WRITE_BW, 4, rdma)] if len(rdma) > 1 else []
    found = []
    for program, count, links in steps:
        devices = tuple(str(link.here.hca) for link in links)
        progress(f"{program}, {count} queue pairs, {' + '.join(devices)}")
        figures = await asyncio.gather(*(_on_device(pair, program, count, link, seconds) for link in links))
        rates = [each.gbit_s for each in figures if each.gbit_s is not None]
        each = tuple(rates) if len(rates) == len(links) > 1 else ()
        found.append(figures[0].replace(devices=devices, gbit_s=sum(rates) if rates else None, each_gbit_s=each))
    return found


async def _on_device(pair: LinkPair, program: str, count: int, link: SharedLink, seconds: float) -> LinkMeasurement:
    port = _draw_port()

    def argv(end: Link, *server: str) -> list[str]:
        """End of the test; `-x` as perftest's own choice, GID 0, is RoCEv1 on many boxes."""
        gid = () if end.gid_index is None else ("-x", str(end.gid_index))
        how = (
            ("-n", "2000")
            if program == WRITE_LAT
            else ("-D", f"{max(1, round(seconds))}", "-q", str(count), "--report_gbits")
        )
        return _limited(seconds, program, "-d", end.hca or "", *gid, "-F", "-p", str(port), *how, *server)

    said = await _both_ends(pair, argv(link.there), argv(link.here, str(link.there.address)))
    figures = parse_latency(said.out) if program == WRITE_LAT else parse_bandwidth(said.out)
    if figures is None:
        raise NotMeasured(f"{program} on {link.here.hca}: {complaint(said)}.")
    return LinkMeasurement(
        tool=LinkTool.PERFTEST, what=program, source=pair.here.name, target=pair.there.name, streams=count, **figures
    )


def parse_bandwidth(text: str) -> dict[str, Any] | None:
    """Read the last row of perftest's table of `--report_gbits`: bytes, iterations, peak, average, message rate."""
    row = _last_row(text, 5)
    return {"size": int(row[0]), "gbit_s": row[3]} if row else None


def parse_latency(text: str) -> dict[str, Any] | None:
    """Read the last row of ib_write_lat's table, one way: bytes, iterations, least, most, typical, …, 99 %, 99.9 %."""
    row = _last_row(text, 9)
    return {"size": int(row[0]), "latency_us": row[4], "latency_p99_us": row[7]} if row else None


def _last_row(text: str, columns: int) -> list[float] | None:
    rows = [found for line in text.splitlines() if len(found := _numbers(line)) == columns]
    return rows[-1] if rows else None


def _numbers(line: str) -> list[float]:
    try:
        return [float(word) for word in line.split()]
    except ValueError:
        return []


async def _iperf3(pair: LinkPair, seconds: float, progress: Progress) -> list[LinkMeasurement]:
    """Measure TCP in both directions with one and several streams."""
    await _require(pair, LinkTool.IPERF3, ("iperf3", "--version"))
    here, there = str(pair.links[0].here.address), str(pair.links[0].there.address)
    found = []
    for count in STREAMS:
        for reverse in (False, True):
            source, target = (pair.there, pair.here) if reverse else (pair.here, pair.there)
            progress(f"iperf3, {source.shown} to {target.shown}, {count} streams")
            port = str(_draw_port())
            serve = _limited(seconds, "iperf3", "-s", "-1", "-B", there, "-p", port)
            call = f"iperf3 -c {there} -B {here} -p {port} -t {max(1, round(seconds))} -P {count} -J".split()
            said = await _both_ends(pair, serve, _limited(seconds, *call, *(["-R"] if reverse else [])))
            found.append(LinkMeasurement(
                tool=LinkTool.IPERF3, what="iperf3, TCP", source=source.name, target=target.name, streams=count,
                gbit_s=parse_iperf3(said.out),
            ))  # fmt: skip
    return found


def parse_iperf3(text: str) -> float:
    """Read the received Gb/s of iperf3's JSON. Raises NotMeasured with iperf3's own reason."""
    try:
        found = json.loads(text)
        if "error" in found:
            raise NotMeasured(f"iperf3: {found['error']}.")
        return float(found["end"]["sum_received"]["bits_per_second"]) / 1e9
    except (ValueError, LookupError, TypeError):
        raise NotMeasured("iperf3 gave no figures.") from None


async def _nccl_tests(pair: LinkPair, progress: Progress) -> list[LinkMeasurement]:
    """Run all_reduce_perf over both boxes by mpirun, which logs in with the user's own ssh."""
    progress("all_reduce_perf of nccl-tests")
    best = pair.links[0]
    ends = str(best.here.address), str(best.there.address), best.here.interface
    said = await _run(
        pair.here, ("timeout", "-k", "1", str(NCCL_LIMIT_S), "sh", "-c", NCCL, "sh", *ends), NCCL_LIMIT_S + 10
    )
    if said.code == NOT_FOUND:
        raise NotMeasured(f"nccl-tests and mpirun are not installed on both boxes: {INSTALL[LinkTool.NCCL_TESTS]}.")
    rows = parse_nccl(said.out)
    if not rows:
        raise NotMeasured(f"all_reduce_perf: {complaint(said)}.")
    return [
        LinkMeasurement(
            tool=LinkTool.NCCL_TESTS, what="all_reduce_perf, bus bandwidth",
            source=pair.here.name, target=pair.there.name,
            size=size, gbit_s=gbit_s, time_us=time_us,
        )
        for size, time_us, gbit_s in rows
    ]  # fmt: skip


def parse_nccl(text: str) -> list[tuple[int, float, float]]:
    """Read size, microseconds and bus Gb/s of all_reduce_perf's rows, out of place."""
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+float\s", line)]
    return [(int(row[0]), float(row[5]), float(row[7]) * 8) for row in rows if len(row) > 8]


async def _require(pair: LinkPair, tool: LinkTool, version: Sequence[str]) -> None:
    found = await asyncio.gather(*(_run(box, version, LIMIT_S) for box in (pair.here, pair.there)))
    if any(done.code == NOT_FOUND for done in found):
        raise NotMeasured(f"{tool.value} is not installed on both boxes: {INSTALL[tool]}.")


async def _both_ends(pair: LinkPair, serve: Sequence[str], call: Sequence[str]) -> CommandResult:
    """Start the server there, and its client here until it has met the server or the server has ended."""
    server = asyncio.ensure_future(_run(pair.there, serve, LIMIT_S * 2))
    try:
        for _ in range(TRIES):
            done = await _run(pair.here, call, LIMIT_S * 2)
            if server.done() or not any(words in done.out + done.err for words in _NOT_YET):
                break
            await asyncio.sleep(APART_S)
        return done
    finally:
        server.cancel()
        await asyncio.wait((server,))


async def _run(box: Box, argv: Sequence[str], deadline_s: float) -> CommandResult:
    return await box.runs()(argv, deadline_s=deadline_s)


def _limited(seconds: float, *argv: str) -> list[str]:
    return ["timeout", "-k", "1", str(LIMIT_S + round(seconds)), *argv]


def _draw_port() -> int:
    return random.randint(*PORTS)  # noqa: S311 - no secret


def complaint(said: CommandResult) -> str:
    lines = [line.strip() for line in (said.out + said.err).splitlines() if not _NOISE.search(line)]
    return lines[-1] if lines else "it printed nothing"
