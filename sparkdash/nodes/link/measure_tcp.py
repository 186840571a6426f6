"""Measurement of a link by plain TCP streams between two scripts.

Owns: the steps, the start of both ends, and what a broken link becomes. Must not know ssh.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from sparkdash.domain.node import LOCAL
from sparkdash.errors import HostError
from sparkdash.nodes.link import remote_tcp
from sparkdash.nodes.link.box import Box
from sparkdash.nodes.link.piped import ask
from sparkdash.nodes.link.record import LinkMeasurement

SECONDS = 2.0
STREAMS = (1, 4, 8)
PINGS = 1000
PORTS = (20000, 32000)
"""Ports below the kernel's ephemeral range, from which one is drawn for each step."""
GRACE_S = 20.0
"""Time for a step beside its seconds: two interpreters start, and a dead link is noticed."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """Box and its address on the link."""

    box: Box
    address: str


async def measure_tcp(
    here: LinkEnd, there: LinkEnd, progress: Progress, *, seconds: float = SECONDS
) -> tuple[LinkMeasurement, ...]:
    """Measure latency, and both directions with one and several streams.

    Raises:
        HostError: link_lost when the link broke in the middle; node_unreachable; script_failed.
    """
    progress("latency")
    found = [await _latency(here, there)]
    for count in STREAMS:
        for source, target in ((here, there), (there, here)):
            progress(f"{source.box.shown} to {target.box.shown}, {count} {'stream' if count == 1 else 'streams'}")
            found.append(await _streams(source, target, count, seconds))
    return tuple(found)


async def _latency(here: LinkEnd, there: LinkEnd) -> LinkMeasurement:
    _, answer = await _both_ends(here, there, streams=1, seconds=0.0, pings=PINGS)
    ways = sorted(trip / 2 for trip in answer["round_trips_us"])
    return LinkMeasurement(
        what="tcp ping, half the round trip",
        source=here.box.name,
        target=there.box.name,
        size=1,
        latency_us=median(ways),
        latency_p99_us=ways[int(len(ways) * 0.99)],
    )


async def _streams(source: LinkEnd, target: LinkEnd, count: int, seconds: float) -> LinkMeasurement:
    answer, _ = await _both_ends(source, target, streams=count, seconds=seconds, pings=0)
    longest = max(one["seconds"] for one in answer["streams"])
    octets = sum(one["bytes"] for one in answer["streams"])
    return LinkMeasurement(
        what="tcp stream" if count == 1 else "tcp streams",
        source=source.box.name,
        target=target.box.name,
        streams=count,
        gbit_s=octets * 8 / longest / 1e9 if longest > 0 else None,
    )


async def _both_ends(
    source: LinkEnd, target: LinkEnd, *, streams: int, seconds: float, pings: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run the receiving and the sending end at once; return their answers. An end without the other soon ends."""
    common = {
        "port": random.randint(*PORTS),  # noqa: S311 - no secret
        "token": secrets.token_hex(16),
        "streams": streams,
        "seconds": seconds,
        "pings": pings,
    }
    ends = (
        (target, {**common, "role": "receive", "address": target.address, "peer": source.address}),
        (source, {**common, "role": "send", "address": source.address, "peer": target.address}),
    )
    received, sent = await asyncio.gather(
        *(ask(end.box, remote_tcp, request, deadline_s=seconds + GRACE_S) for end, request in ends),
        return_exceptions=True,
    )
    for answer in (received, sent):  # an end that saw the link break tells more than a connection that broke with it
        if isinstance(answer, dict) and answer.get("began"):
            raise _broken(source, target, answer)
    if isinstance(received, BaseException):
        raise _silenced(source, target, received)
    if isinstance(sent, BaseException):
        raise _silenced(source, target, sent)
    for answer in (sent, received):
        if "error" in answer:
            raise _broken(source, target, answer)
    return received, sent


def _silenced(source: LinkEnd, target: LinkEnd, error: BaseException) -> BaseException:
    """Name the measurement when a box that answered a moment before has fallen silent."""
    if not isinstance(error, HostError) or error.code != "node_unreachable":
        return error
    return _broken(source, target, {"error": error.message.rstrip("."), "began": True})


def _broken(source: LinkEnd, target: LinkEnd, answer: dict[str, Any]) -> HostError:
    between = f"between {source.box.shown} ({source.address}) and {target.box.shown} ({target.address})"
    other = target if source.box.name == LOCAL else source
    if answer.get("began"):
        return HostError(
            f"The link {between} broke during the measurement: {answer['error']}.",
            code="link_lost",
            hint=f"Check cable and interface: `sparkdash nodes check {other.box.name}`.",
        )
    return HostError(
        f"No TCP connection {between}: {answer['error']}.",
        code="link_closed",
        hint=f"A firewall or a missing route may be the cause: `sparkdash nodes check {other.box.name}` tells.",
    )
