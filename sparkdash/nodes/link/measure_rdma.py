"""Measurement of a link by perftest, where it is installed on both boxes.

Owns: the steps, and the start of both ends. Must not know ssh, or perftest's tables.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import NamedTuple

from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.nodes.link import perftest
from sparkdash.nodes.link.box import NOT_FOUND, Box
from sparkdash.nodes.link.common import SharedLink
from sparkdash.nodes.link.measure_tcp import PORTS, Progress
from sparkdash.nodes.link.perftest import PerftestFigures
from sparkdash.nodes.link.record import LinkMeasurement

QUEUE_PAIRS = (1, 4, 8)
DEADLINE_S = perftest.LIMIT_S + 10.0
TRIES, APART_S = 20, 0.25
"""Attempts of a client, which may come before its server listens, and their distance."""


class BoxPair(NamedTuple):
    """Boxes of a measurement, this one first."""

    here: Box
    there: Box


async def perftest_version(pair: BoxPair) -> str | None:
    """Version of perftest where both boxes have it; None otherwise. Raises HostError: a box is silent."""
    found = await asyncio.gather(*(_run(box, perftest.version_command()) for box in pair))
    versions = [perftest.parse_version(done.out + done.err) for done in found if done.code != NOT_FOUND]
    return versions[0] if len(versions) == len(pair) else None


async def measure_rdma(pair: BoxPair, links: Sequence[SharedLink], progress: Progress) -> tuple[LinkMeasurement, ...]:
    """Measure latency, writes with one and several queue pairs, sends, and all devices of the link at once.

    `links`: those with an RDMA device on both ends, the best first.

    Raises:
        HostError: perftest_failed with perftest's own words; node_unreachable.
    """
    first = links[:1]
    steps = [(perftest.WRITE_LAT, 1, first)]
    steps += [(perftest.WRITE_BW, count, first) for count in QUEUE_PAIRS]
    steps += [(perftest.SEND_BW, QUEUE_PAIRS[1], first)]
    steps += [(perftest.WRITE_BW, QUEUE_PAIRS[1], links)] if len(links) > 1 else []
    found = []
    for program, count, used in steps:
        progress(f"{program}, {count} {'queue pair' if count == 1 else 'queue pairs'}, {_names(used)}")
        found.append(await _step(pair, program, count, used))
    return tuple(found)


def _names(links: Sequence[SharedLink]) -> str:
    return " + ".join(str(link.here.hca) for link in links)


async def _step(pair: BoxPair, program: str, count: int, links: Sequence[SharedLink]) -> LinkMeasurement:
    """Run one test on each of the links at once; rates add up."""
    figures = await asyncio.gather(*(_one_link(pair, program, count, link) for link in links))
    rates = [each.gbit_s for each in figures if each.gbit_s is not None]
    return LinkMeasurement(
        what=program,
        source=pair.here.name,
        target=pair.there.name,
        streams=count,
        devices=tuple(str(link.here.hca) for link in links),
        size=figures[0].size,
        gbit_s=sum(rates) if rates else None,
        latency_us=figures[0].latency_us,
        latency_p99_us=figures[0].latency_p99_us,
    )


async def _one_link(pair: BoxPair, program: str, count: int, link: SharedLink) -> PerftestFigures:
    port = random.randint(*PORTS)  # noqa: S311 - no secret
    serve = perftest.measure_command(program, link.there, port=port, queue_pairs=count)
    call = perftest.measure_command(program, link.here, port=port, queue_pairs=count, server=link.there.address)
    server = asyncio.ensure_future(_run(pair.there, serve))
    try:
        done = await _called(pair.here, call, server)
    finally:
        server.cancel()
        await asyncio.wait((server,))
    parse = perftest.parse_latency if program == perftest.WRITE_LAT else perftest.parse_bandwidth
    figures = parse(done.out)
    if figures is None:
        served = server.result() if not server.cancelled() and server.exception() is None else None
        said = [done.out + done.err, *([served.out + served.err] if served and served.code else [])]
        raise _failed(pair, program, link, said)
    return figures


def _failed(pair: BoxPair, program: str, link: SharedLink, said: list[str]) -> HostError:
    between = f"{pair.here.shown} ({link.here.hca}) and {pair.there.shown} ({link.there.hca})"
    if perftest.peer_vanished(said):
        return HostError(
            f"The link between {between} broke during {program}: {perftest.complaint(said)}.",
            code="link_lost",
            hint=f"Check cable and interface: `sparkdash nodes check {pair.there.name}`.",
        )
    return HostError(
        f"{program} between {between} gave no figures: {perftest.complaint(said)}.",
        code="perftest_failed",
        hint=f"`sparkdash nodes check {pair.there.name}` examines devices and GIDs; `--tcp` measures without RDMA.",
    )


async def _called(box: Box, call: Sequence[str], server: asyncio.Future[CommandResult]) -> CommandResult:
    """Run the client until it has met its server, or the server has ended."""
    for _ in range(TRIES):
        done = await _run(box, call)
        if not perftest.could_not_connect(done.out + done.err) or server.done():
            return done
        await asyncio.sleep(APART_S)
    return done


async def _run(box: Box, argv: Sequence[str]) -> CommandResult:
    if box.commands is None:
        raise box.silent or HostError(f"{box.name} cannot be reached.", code="node_unreachable")
    return await box.commands.run(argv, deadline_s=DEADLINE_S)
