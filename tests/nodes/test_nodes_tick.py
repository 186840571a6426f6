"""Lines of a node's stream, and the rates of its links: counters that begin anew, or are read late."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from sparkdash.domain.metric import LinkSample
from sparkdash.nodes.agent.tick import LinkRates, PortCount, read_tick

GOOD: dict[str, Any] = {
    "clock": 1.8e9, "at": 1000.5, "id": 7,
    "memory": {"total": 100, "available": 60, "free": 10, "page_cache": 30, "swap_total": 8, "swap_used": 2, "pressure": 0.1},
    "gpu": {"name": "NVIDIA GB10", "utilization": 0.5, "power_w": 45.5, "temperature_c": 60, "throttle": ["thermal"], "driver": "580"},
    "interfaces": [{"name": "eth0", "index": 2, "received": 10, "sent": 20, "errors": 1, "up": True, "gbit": 10.0}],
    "rdma": [{"name": "rocep1s0f1", "unit": 4, "received": 3, "sent": 4, "errors": 0, "up": True, "gbit": 100}],
    "engines": {"sparkdash-a": 50}, "guarded": True,
    "kills": [{"id": "kill-1", "clock": 5.0, "available": 3, "floor": 9, "processes": None, "of_a_later_version": 1}],
}  # fmt: skip


def test_a_line_is_read_whole_also_with_a_report_of_another_version() -> None:
    tick = read_tick(json.dumps(GOOD))
    assert tick is not None
    assert tick.memory is not None
    assert (tick.memory.total, tick.memory.available, tick.memory.pressure) == (100, 60, 0.1)
    assert tick.gpu is not None
    assert (tick.gpu.name, tick.gpu.power_w, tick.gpu.sm_clock_mhz) == ("NVIDIA GB10", 45.5, None)
    assert [(port.name, port.rdma) for port in (*tick.interfaces, *tick.rdma)] == [
        ("eth0", False),
        ("rocep1s0f1", True),
    ]
    assert (tick.id, tick.engines, tick.guarded) == (7, {"sparkdash-a": 50}, True)
    assert [(act.id, act.container) for act in tick.kills] == [("kill-1", None)]


@pytest.mark.parametrize("sent", ["", "null", "Welcome to Ubuntu 24.04", json.dumps(GOOD)[:-40], '{"clock": 1}'])
def test_what_is_no_tick_is_passed_over(sent: str) -> None:
    assert read_tick(sent) is None


def eth(received: int | None, sent: int | None = 0, errors: int | None = 0, index: int = 2) -> PortCount:
    """Counters of an interface of 10 Gb/s."""
    return PortCount(name="eth0", received=received, sent=sent, errors=errors, up=True, gbit=10.0, index=index)


def roce(received: int | None, sent: int | None = 0) -> PortCount:
    """Counters of an RDMA port of 100 Gb/s, in units of four octets."""
    return PortCount(name="rocep1s0f1", received=received, sent=sent, errors=0, up=True, gbit=100.0, unit=4)


def last(rates: LinkRates, *readings: tuple[float, PortCount]) -> LinkSample:
    """The sample after these readings."""
    for at, port in readings:
        (sample,) = rates.add(at, [port])
    return sample


OLD = (0.0, eth(1000))
QUICK = ((0.0, eth(0)), (1.0, eth(1000)), (1.01, eth(900_000)))
RATES: dict[str, tuple[float | None, Sequence[tuple[float, PortCount]]]] = {
    "bytes over the time of the node itself": (2000.0, [(100.0, eth(1000)), (102.0, eth(5000))]),
    "an RDMA count stands for four octets": (4_000_000, [(0.0, roce(0)), (1.0, roce(1_000_000))]),
    "the first reading": (None, [OLD]),
    "a reading without a counter": (None, [OLD, (1.0, eth(None))]),
    "a reading after one without a counter": (None, [(0.0, eth(None)), (1.0, eth(1000))]),
    "an idle link, which is not unknown": (0.0, [OLD, (1.0, eth(1000))]),
    "a counter that begins anew": (None, [OLD, (1.0, eth(10))]),
    "a counter that began anew": (1000.0, [OLD, (1.0, eth(10)), (2.0, eth(1010))]),
    "an interface that was made anew": (None, [OLD, (1.0, eth(9000, index=3))]),
    "a reboot": (None, [(90_000.0, eth(1000)), (30.0, eth(9000))]),
    "two readings at nearly the same time": (1000.0, QUICK),
    "a reading after two at nearly the same time": (900_000.0, [*QUICK, (2.0, eth(901_000))]),
}


@pytest.mark.parametrize("case", RATES)
def test_the_rate_of_a_link(case: str) -> None:
    rate, readings = RATES[case]
    assert last(LinkRates(), *readings).received_bytes_s == rate


def test_bytes_add_up_over_the_connection_and_a_counter_that_begins_anew_takes_none_away() -> None:
    rates = LinkRates()
    assert last(rates, (100.0, eth(1000, 500))).received_bytes is None
    assert last(rates, (102.0, eth(5000, 700))).sent_bytes_s == 100.0
    sample = last(rates, (103.0, eth(6000, 700)), (104.0, eth(10, 5)), (105.0, eth(20, 9)))
    assert (sample.received_bytes, sample.sent_bytes) == (5010, 204)
    assert last(LinkRates(), (0.0, roce(0)), (1.0, roce(1_000_000))).received_bytes == 4_000_000


def test_errors_count_since_the_connection_also_past_a_new_counter() -> None:
    rates = LinkRates()
    assert last(rates, (0.0, eth(0, errors=500))).errors == 0
    assert last(rates, (1.0, eth(0, errors=503))).errors == 3
    assert last(rates, (2.0, eth(0, errors=2))).errors == 5
    assert last(rates, (3.0, eth(0, errors=9, index=9))).errors == 5


def test_a_port_that_is_gone_and_comes_back_begins_anew() -> None:
    rates = LinkRates()
    rates.add(0.0, [eth(1000)])
    assert rates.add(1.0, []) == ()
    assert last(rates, (2.0, eth(9000))).received_bytes_s is None
