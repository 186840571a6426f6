"""Link rates: traffic per second out of counters, which wrap, stand at their end, and begin anew.

Owns: the difference of two readings, the rate, and the errors since the connection. Must not know where counters come
from.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from sparkdash.domain.metric import LinkSample
from sparkdash.nodes.agent.tick import PortCount

NARROW, WIDE = 2**32, 2**64
"""Counters have 32 or 64 bits."""
LEAST_S = 0.15
"""Shortest interval of a rate: over less, one burst looks like a rate."""
SLACK = 1.25
"""Most that a link may seem to carry of its rate, as clocks and ticks are not exact."""
FASTEST_GBIT = 800.0
"""Rate that a link of unknown rate may have."""


class LinkRates:
    """Rates of all ports of one connection. Not thread-safe."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, bool], tuple[float, PortCount]] = {}
        self._errors: dict[tuple[str, bool], int] = {}
        self._last: dict[tuple[str, bool], tuple[float | None, float | None]] = {}
        self._bytes: dict[tuple[str, bool], tuple[int | None, int | None]] = {}
        """Bytes received and sent since the connection; None until a difference is known."""

    def add(self, at: float, ports: Iterable[PortCount]) -> tuple[LinkSample, ...]:
        """Return the traffic of each port since the reading before; `at` is seconds since the box's boot."""
        here = {(port.name, port.rdma): port for port in ports}
        samples = tuple(self._sample(key, at, port) for key, port in here.items())
        for known in (self._before, self._errors, self._last, self._bytes):
            for gone in known.keys() - here.keys():
                del known[gone]
        return samples

    def _sample(self, key: tuple[str, bool], at: float, port: PortCount) -> LinkSample:
        then, before = self._before.get(key, (at, port))
        if not 0 <= at - then < LEAST_S or before is port:
            self._count_errors(key, before, port)
            self._last[key] = self._rates(at - then, before, port)
            self._add_bytes(key, at - then)
            self._before[key] = at, port
        received, sent = self._last[key]
        received_bytes, sent_bytes = self._bytes.get(key, (None, None))
        return LinkSample(
            name=port.name,
            rdma=port.rdma,
            received_bytes_s=received,
            sent_bytes_s=sent,
            received_bytes=received_bytes,
            sent_bytes=sent_bytes,
            errors=self._errors.get(key),
            up=port.up,
            rate_gbit_s=port.gbit,
        )

    def _rates(self, seconds: float, before: PortCount, now: PortCount) -> tuple[float | None, float | None]:
        if seconds <= 0 or before.ifindex != now.ifindex:
            return None, None
        most = SLACK * (now.gbit or FASTEST_GBIT) * 1e9 / 8 * seconds / now.unit
        received, sent = (counted(a, b, most) for a, b in ((before.received, now.received), (before.sent, now.sent)))
        scale = now.unit / seconds
        return None if received is None else received * scale, None if sent is None else sent * scale

    def _add_bytes(self, key: tuple[str, bool], seconds: float) -> None:
        received, sent = (
            total if rate is None else (total or 0) + round(rate * seconds)
            for total, rate in zip(self._bytes.get(key, (None, None)), self._last[key], strict=True)
        )
        self._bytes[key] = received, sent

    def _count_errors(self, key: tuple[str, bool], before: PortCount, now: PortCount) -> None:
        if now.errors is None:
            return
        new = now.errors - before.errors if before.errors is not None and before.ifindex == now.ifindex else 0
        self._errors[key] = self._errors.get(key, 0) + (new if new >= 0 else now.errors)


def counted(before: int | None, now: int | None, most: float) -> int | None:
    """Return the counts between two readings, at most `most`; None where the counters do not tell.

    A counter that went back has wrapped, or began anew. It has wrapped if it was in the upper half of its 32 or 64
    bits, is in the lower half now, and the difference is no more than the link can carry. A counter of 32 bits that
    stands at its end has stopped counting, as the classic ones of InfiniBand do.
    """
    if before is None or now is None or now == NARROW - 1 == before:
        return None
    if now >= before:
        return now - before if now - before <= most else None
    width = NARROW if before < NARROW else WIDE
    wrapped = now + width - before
    has_wrapped = before >= width // 2 and now < width // 2 and wrapped <= most
    return wrapped if has_wrapped else None
