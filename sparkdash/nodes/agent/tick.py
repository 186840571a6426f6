"""Ticks: lines that a node's stream of figures sends, checked.

A node may lie, or be another version: a figure outside its range is unknown (None), and a line that is no tick is
refused whole. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from sparkdash.domain.metric import Gpu, LinkSample, Memory
from sparkdash.units import printable

LINE_LIMIT = 64 * 1024
BYTES_LIMIT = 2**60
"""Largest count of bytes that is believed: an exbibyte of memory."""
COUNTER_LIMIT = 2**64
NAMES_LIMIT = 64
"""Most interfaces, RDMA ports or containers of one tick."""
NAME_LIMIT = 64
TEXT_LIMIT = 128
KILLS_LIMIT = 20
GBIT_LIMIT = 10_000.0


class PortCount(NamedTuple):
    """Counters of an interface or RDMA port at one moment. None is unknown."""

    name: str
    rdma: bool
    received: int | None
    sent: int | None
    errors: int | None
    up: bool | None
    gbit: float | None
    unit: int = 1
    """Bytes that one count stands for."""
    ifindex: int | None = None
    """Kernel's number of the interface; another one means that it was made anew."""


class GuardAct(NamedTuple):
    """Act of a node's memory guard by its own report: a kill, or a warning in its place."""

    id: str
    clock: float
    """Time by the node's clock, Unix seconds."""
    container: str | None
    """Container that it killed; None where it may only warn."""
    profile: str | None
    available: int
    floor: int
    pressure: float | None = None
    fall: float = 0.0
    """Bytes a second by which available memory fell."""
    processes: int = 0


class AgentTick(NamedTuple):
    """Figures of one line of the stream."""

    clock: float
    """Node's clock, Unix seconds."""
    at: float
    """Seconds since the node's boot."""
    answers: int | None
    """Number of the command that it answers."""
    memory: Memory | None
    gpu: Gpu | None
    ports: tuple[PortCount, ...]
    engines: dict[str, int]
    """Memory of our engines' containers there, by name."""
    guarded: bool
    kills: tuple[GuardAct, ...]
    held: tuple[str, ...]
    """Our containers that are paused, or of which a process is stopped."""
    reached: dict[str, int | None]
    """For each probed address the losses among its last answers; None where it does not answer."""


def parse_tick(line: bytes | str) -> AgentTick:
    """Read one line. Raises ValueError with the reason when it is no tick."""
    if len(line) > LINE_LIMIT:
        raise ValueError(f"the line has more than {LINE_LIMIT} bytes")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("the line is no JSON") from None
    if not isinstance(found, dict):
        raise ValueError("the line is no JSON object")  # noqa: TRY004 - of what the node sent, not of our types
    clock, at = _float(found.get("clock"), 0, 1e11), _float(found.get("at"), 0, 1e11)
    if clock is None or at is None:
        raise ValueError("the line has no time")
    return AgentTick(
        clock=clock,
        at=at,
        answers=_int(found.get("id"), COUNTER_LIMIT),
        memory=_memory(found.get("memory")),
        gpu=_gpu(found.get("gpu")),
        ports=(*_ports(found.get("interfaces"), rdma=False), *_ports(found.get("rdma"), rdma=True)),
        engines=_engines(found.get("engines")),
        guarded=found.get("guarded") is True,
        held=tuple(name for each in _list(found.get("held"), NAMES_LIMIT) if (name := _text(each))),
        reached={
            name: _int(lost, COUNTER_LIMIT) for name, lost in [*_dict(found.get("reached")).items()][:NAMES_LIMIT]
        },
        kills=tuple(act for each in _list(found.get("kills"), KILLS_LIMIT) if (act := _act(each))),
    )


def _memory(found: object) -> Memory | None:
    told = _dict(found)
    total, available, free = (_int(told.get(name), BYTES_LIMIT) for name in ("total", "available", "free"))
    if not total or available is None or free is None or available > total or free > total:
        return None
    swap_total = _int(told.get("swap_total"), BYTES_LIMIT)
    return Memory(
        total=total,
        available=available,
        free=free,
        page_cache=_int(told.get("page_cache"), total),
        swap_total=swap_total,
        swap_used=_int(told.get("swap_used"), swap_total or 0),
        pressure=_float(told.get("pressure"), 0, 1),
    )


def _gpu(found: object) -> Gpu | None:
    if not isinstance(found, dict):
        return None
    return Gpu(
        name=_text(found.get("name")),
        utilization=_float(found.get("utilization"), 0, 1),
        power_w=_float(found.get("power_w"), 0, 10_000),
        temperature_c=_float(found.get("temperature_c"), -100, 300),
        sm_clock_mhz=_float(found.get("sm_clock_mhz"), 0, 100_000),
        sm_clock_max_mhz=_float(found.get("sm_clock_max_mhz"), 0, 100_000),
        throttle=tuple(word for each in _list(found.get("throttle"), 16) if (word := _text(each))),
        driver=_text(found.get("driver")),
    )


def _ports(found: object, *, rdma: bool) -> list[PortCount]:
    ports = [_port(_dict(each), rdma=rdma) for each in _list(found, NAMES_LIMIT)]
    named = {port.name: port for port in ports if port.name}
    return list(named.values())


def _port(told: dict[str, Any], *, rdma: bool) -> PortCount:
    up = told.get("up")
    return PortCount(
        name=_name(told.get("name")) or "",
        rdma=rdma,
        received=_int(told.get("received"), COUNTER_LIMIT),
        sent=_int(told.get("sent"), COUNTER_LIMIT),
        errors=_int(told.get("errors"), COUNTER_LIMIT),
        up=up if isinstance(up, bool) else None,
        gbit=_float(told.get("gbit"), 0, GBIT_LIMIT) or None,
        unit=4 if rdma else 1,
        ifindex=_int(told.get("index"), 2**31),
    )


def _engines(found: object) -> dict[str, int]:
    told = list(_dict(found).items())[:NAMES_LIMIT]
    sizes = {_name(name): _int(size, BYTES_LIMIT) for name, size in told}
    return {name: size for name, size in sizes.items() if name and size is not None}


def _act(found: object) -> GuardAct | None:
    told = _dict(found)
    name, clock = _name(told.get("id")), _float(told.get("clock"), 0, 1e11)
    available, floor = _int(told.get("available"), BYTES_LIMIT), _int(told.get("floor"), BYTES_LIMIT)
    if name is None or clock is None or available is None or floor is None:
        return None
    return GuardAct(
        id=name,
        clock=clock,
        container=_text(told.get("container")),
        profile=_text(told.get("profile")),
        available=available,
        floor=floor,
        pressure=_float(told.get("pressure"), 0, 1),
        fall=_float(told.get("fall"), 0, 1e15) or 0.0,
        processes=_int(told.get("processes"), 2**22) or 0,
    )


def _dict(found: object) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _list(found: object, limit: int) -> list[Any]:
    return found[:limit] if isinstance(found, list) else []


def _int(found: object, limit: int) -> int | None:
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= limit else None


def _float(found: object, least: float, most: float) -> float | None:
    if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
        return None
    return float(found) if math.isfinite(found) else None


def _text(found: object) -> str | None:
    return printable(found)[:TEXT_LIMIT] or None if isinstance(found, str) else None


def _name(found: object) -> str | None:
    """Return a name that is not cut; a longer or unprintable one could be mistaken for another."""
    return found if isinstance(found, str) and 0 < len(found) <= NAME_LIMIT * 2 and found == printable(found) else None


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
        received, sent = (_grown(a, b, most) for a, b in ((before.received, now.received), (before.sent, now.sent)))
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


def _grown(before: int | None, now: int | None, most: float) -> int | None:
    """Counts between two readings; None where a counter began anew, or grew by more than the link can carry."""
    return now - before if before is not None and now is not None and 0 <= now - before <= most else None
