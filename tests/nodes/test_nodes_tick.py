"""Lines of a node's stream: a node may lie, be cut off, or be another version."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.nodes.agent.tick import LINE_LIMIT, NAMES_LIMIT, parse_tick
from sparkdash.units import printable

GOOD: dict[str, Any] = {
    "clock": 1.8e9, "at": 1000.5, "id": 7,
    "memory": {"total": 100, "available": 60, "free": 10, "page_cache": 30, "swap_total": 8, "swap_used": 2, "pressure": 0.1},
    "gpu": {"name": "NVIDIA GB10", "utilization": 0.5, "power_w": 45.5, "temperature_c": 60, "throttle": ["thermal"], "driver": "580"},
    "interfaces": [{"name": "eth0", "index": 2, "received": 10, "sent": 20, "errors": 1, "up": True, "gbit": 10.0}],
    "rdma": [{"name": "rocep1s0f1", "received": 3, "sent": 4, "errors": 0, "up": True, "gbit": 100}],
    "engines": {"sparkdash-a": 50}, "guarded": True, "kills": [],
}  # fmt: skip


def line(**changes: Any) -> str:
    return json.dumps({**GOOD, **changes})


def test_a_line_is_read_whole() -> None:
    tick = parse_tick(line())
    assert tick.memory is not None
    assert (tick.memory.total, tick.memory.available, tick.memory.pressure) == (100, 60, 0.1)
    assert tick.gpu is not None
    assert (tick.gpu.name, tick.gpu.power_w, tick.gpu.sm_clock_mhz) == ("NVIDIA GB10", 45.5, None)
    assert [(port.name, port.rdma, port.unit) for port in tick.ports] == [("eth0", False, 1), ("rocep1s0f1", True, 4)]
    assert (tick.answers, tick.engines, tick.guarded) == (7, {"sparkdash-a": 50}, True)


@pytest.mark.parametrize(
    "sent",
    [
        "", "{", "null", "[]", '"tick"', "Welcome to Ubuntu 24.04", line()[:-40], "[" * 60_000, '{"clock": NaN, "at": 1}',
        '{"clock": 1e999, "at": 1}', '{"clock": "1", "at": 1}', '{"clock": true, "at": 1}', '{"clock": -1, "at": 1}',
        '{"clock": 1}', "9" * 5000, '{"clock": 1, "at": ' + "9" * 5000 + "}",
    ],
)  # fmt: skip
def test_what_is_no_tick_is_refused_with_a_reason(sent: str) -> None:
    with pytest.raises(ValueError, match=r"the line .*"):
        parse_tick(sent)


def test_a_line_without_end_is_refused_by_its_length() -> None:
    with pytest.raises(ValueError, match="more than"):
        parse_tick(line(filler="x" * LINE_LIMIT))


@pytest.mark.parametrize(
    "memory",
    [
        None, 5, "much", [], {}, {"total": 100}, {"total": 0, "available": 0, "free": 0},
        {"total": 100, "available": 101, "free": 1}, {"total": 100, "available": -1, "free": 1},
        {"total": 100.5, "available": 1, "free": 1}, {"total": True, "available": 1, "free": 1},
        {"total": 2**70, "available": 1, "free": 1}, {"total": "100", "available": 1, "free": 1},
    ],
)  # fmt: skip
def test_memory_that_cannot_be_true_is_unknown(memory: object) -> None:
    assert parse_tick(line(memory=memory)).memory is None


@pytest.mark.parametrize("pressure", [-0.1, 1.5, "0.1", None, True, 1e400])
def test_a_pressure_beyond_its_range_is_unknown_and_the_memory_stays(pressure: object) -> None:
    memory = parse_tick(line(memory={**GOOD["memory"], "pressure": pressure})).memory
    assert memory is not None
    assert memory.pressure is None


def test_figures_of_a_gpu_beyond_their_range_are_unknown() -> None:
    gpu = parse_tick(line(gpu={"utilization": 5, "power_w": -3, "temperature_c": "hot", "throttle": [3, "x"]})).gpu
    assert gpu is not None
    assert (gpu.utilization, gpu.power_w, gpu.temperature_c, gpu.throttle) == (None, None, None, ("x",))


@pytest.mark.parametrize("gpu", [None, [], "GB10", 3])
def test_a_box_without_a_gpu_has_none(gpu: object) -> None:
    assert parse_tick(line(gpu=gpu)).gpu is None


def test_names_that_would_steer_a_terminal_or_another_row_are_left_out() -> None:
    ports = [{"name": name, "received": 1} for name in ("\x1b[2J", "a" * 500, "", 5, None, "ok")]
    assert [port.name for port in parse_tick(line(interfaces=ports, rdma=[])).ports] == ["ok"]


def test_a_node_with_thousands_of_ports_or_containers_is_cut() -> None:
    many = [{"name": f"veth{at}", "received": 1} for at in range(500)]
    tick = parse_tick(line(interfaces=many, rdma=None, engines={f"c{at}": 1 for at in range(500)}))
    assert len(tick.ports) == NAMES_LIMIT
    assert len(tick.engines) == NAMES_LIMIT


def test_reports_of_kills_that_lack_a_figure_are_left_out() -> None:
    good = {"id": "kill-1", "clock": 5.0, "container": "sparkdash-a", "available": 3, "floor": 9, "processes": 4}
    acts = parse_tick(line(kills=[good, {**good, "available": "3"}, {**good, "id": ""}, 7, None])).kills
    assert [(act.id, act.container, act.processes) for act in acts] == [("kill-1", "sparkdash-a", 4)]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(sorted(GOOD)), json_values))
def test_any_lie_gives_a_tick_or_a_refusal(lies: dict[str, Any]) -> None:
    try:
        tick = parse_tick(line(**lies))
    except ValueError:
        return
    assert tick.memory is None or 0 <= tick.memory.available <= tick.memory.total
    assert all(size >= 0 for size in tick.engines.values())


@given(st.sampled_from(["memory", "gpu"]), st.dictionaries(st.text(max_size=12), json_values))
def test_any_lie_inside_a_part_gives_a_tick(part: str, lies: dict[str, Any]) -> None:
    parse_tick(line(**{part: {**GOOD[part], **lies}}))


@given(st.dictionaries(st.sampled_from(sorted(GOOD["interfaces"][0])), json_values))
def test_any_lie_about_a_port_gives_a_tick(lies: dict[str, Any]) -> None:
    for port in parse_tick(line(interfaces=[{**GOOD["interfaces"][0], **lies}])).ports:
        assert printable(port.name) == port.name
        assert port.received is None or 0 <= port.received <= 2**64
