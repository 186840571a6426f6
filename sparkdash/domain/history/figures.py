"""Recorded figures, and reading them off a sample.

Owns: names, units and meanings of the box's figures; an engine's are the metrics of telemetry. Rule: a new metric is
recorded without a change here.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from sparkdash.domain.history.answers import FigureInfo
from sparkdash.domain.metric import METRICS, EngineSample, Gpu, LinkSample, Memory, Metric, NodeSample, Sample
from sparkdash.domain.node import LOCAL

MEMORY = "memory_bytes"
"""Memory of an engine's processes."""
QUEUED = "gateway_waiting"
"""Requests that wait for an engine at the gateway."""
ENERGY_BUSY, ENERGY_IDLE = "energy_busy_wh", "energy_idle_wh"
"""Counters of the box's energy."""
SILENT_S = 5.0
"""Age of an engine's figures beyond which they are not recorded again: it is silent."""
TOTALS = (Metric.DECODE, Metric.PREFILL, Metric.RUNNING, Metric.WAITING)
"""Figures of engines that a box has too: their sums."""

OF_ALL = frozenset({*(metric.value for metric in TOTALS), "strangers_bytes", ENERGY_BUSY, ENERGY_IDLE})
"""Figures of a box that tell of every engine's work: hidden from a key for some models."""

_BOX = (
    ("memory_total_bytes", "memory", "bytes", "memory of the box"),
    ("memory_available_bytes", "available", "bytes", "memory that programs can still get, as the kernel counts it"),
    ("memory_free_bytes", "free", "bytes", "memory that nothing uses"),
    ("page_cache_bytes", "page cache", "bytes", "cached files and slab that the kernel gives back when asked"),
    ("swap_used_bytes", "swap", "bytes", "swap space in use"),
    ("memory_pressure", "pressure", "share", "share of time in which all tasks waited for memory (PSI full avg10)"),
    ("strangers_bytes", "others", "bytes", "memory of containers that are not ours"),
    ("gpu_utilization", "gpu", "share", "share of time in which the GPU worked"),
    ("gpu_power_w", "power", "W", "power of the GPU by its own sensor"),
    ("board_power_w", "board power", "W", "power of the whole box by its own sensor, where there is one"),
    (
        ENERGY_BUSY,
        "energy, busy",
        "Wh",
        "energy since the daemon's start while requests ran; begins at 0 with each start",
    ),
    (ENERGY_IDLE, "energy, idle", "Wh", "energy since the daemon's start while none ran; begins at 0 with each start"),
    ("gpu_temperature_c", "temperature", "C", "temperature of the GPU"),
    ("gpu_clock_mhz", "clock", "MHz", "clock of the GPU's processors"),
    ("link_received_bytes_s", "received", "bytes/s", "bytes per second from the other nodes, all links together"),
    ("link_sent_bytes_s", "sent", "bytes/s", "bytes per second to the other nodes, all links together"),
)


class Measured(NamedTuple):
    """Figures of one engine or one box at one moment; `profile` is empty for a box."""

    profile: str
    node: str
    at: float
    values: Mapping[str, float]


def all_figures() -> tuple[FigureInfo, ...]:
    """List every figure that is recorded, engines' first."""
    engine = [
        FigureInfo(
            name=metric.value,
            label=info.label,
            unit=info.unit,
            of=("engine", "box") if metric in TOTALS else ("engine",),
            meaning=info.definition + ("; of a box the sum over its engines" if metric in TOTALS else ""),
        )
        for metric, info in METRICS.items()
    ]
    held = FigureInfo(
        name=MEMORY, label="memory", unit="bytes", of=("engine",), meaning="memory of the engine's processes"
    )
    box = [FigureInfo(name=name, label=label, unit=unit, of=("box",), meaning=text) for name, label, unit, text in _BOX]
    queued = FigureInfo(
        name=QUEUED, label="queue", unit="requests", of=("engine",), meaning="requests that wait at the gateway"
    )
    return (*engine, held, queued, *box)


def unit_of(figure: str) -> str | None:
    """Return the unit of a figure; None for a name that no figure has."""
    return next((info.unit for info in all_figures() if info.name == figure), None)


def measured_of(sample: Sample) -> Iterator[Measured]:
    """Read the figures of all engines and boxes off a sample; unknown values are left out."""
    yield from _measured_engines(sample)
    local = sample.nodes.get(LOCAL)
    if box := _box_values(sample.memory, sample.gpu, local.links if local else ()) | _sums(sample) | _energy(sample):
        yield Measured("", LOCAL, sample.at, box)
    for name, node in sample.nodes.items():
        if name != LOCAL:
            yield from _measured_node(name, node)


def _measured_engines(sample: Sample) -> Iterator[Measured]:
    held = sample.memory.engines if sample.memory else {}
    for profile in sorted({*sample.engines, *held}):
        engine = sample.engines.get(profile)
        values = _engine_values(engine, sample.at) if engine else {}
        if (size := held.get(profile)) is not None:
            values[MEMORY] = float(size)
        if values:
            yield Measured(profile, LOCAL, sample.at, values)


def _measured_node(name: str, node: NodeSample) -> Iterator[Measured]:
    for profile, size in (node.memory.engines if node.memory else {}).items():
        if size is not None:
            yield Measured(profile, name, node.at, {MEMORY: float(size)})
    if values := _box_values(node.memory, node.gpu, node.links):
        yield Measured("", name, node.at, values)


def _engine_values(engine: EngineSample, now: float) -> dict[str, float]:
    """Read an engine's figures, or the gateway's where the engine reports none; a silent engine has none."""
    told = engine if now - engine.at <= SILENT_S else engine.replace(values={})
    found = {metric.value: figure.value for metric in METRICS if (figure := told.figure(metric)).value is not None}
    if engine.gateway is not None:
        found[QUEUED] = float(engine.gateway.waiting)
    return {name: value for name, value in found.items() if value is not None}


def _energy(sample: Sample) -> dict[str, float]:
    energy = sample.energy
    return {ENERGY_BUSY: energy.busy_wh, ENERGY_IDLE: energy.idle_wh} if energy else {}


def _sums(sample: Sample) -> dict[str, float]:
    found: dict[str, float] = {}
    for engine in sample.engines.values():
        values = _engine_values(engine, sample.at)
        for metric in TOTALS:
            if metric.value in values:
                found[metric.value] = found.get(metric.value, 0.0) + values[metric.value]
    return found


def _box_values(memory: Memory | None, gpu: Gpu | None, links: tuple[LinkSample, ...]) -> dict[str, float]:
    found = {
        **(_memory_values(memory) if memory else {}),
        **(_gpu_values(gpu) if gpu else {}),
        "link_received_bytes_s": _sum_known(link.received_bytes_s for link in links),
        "link_sent_bytes_s": _sum_known(link.sent_bytes_s for link in links),
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def _memory_values(memory: Memory) -> dict[str, float | None]:
    return {
        "memory_total_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "memory_free_bytes": memory.free,
        "page_cache_bytes": memory.page_cache,
        "swap_used_bytes": memory.swap_used,
        "memory_pressure": memory.pressure,
        "strangers_bytes": _sum_known(one.bytes for one in memory.strangers),
    }


def _gpu_values(gpu: Gpu) -> dict[str, float | None]:
    return {
        "gpu_utilization": gpu.utilization,
        "gpu_power_w": gpu.power_w,
        "board_power_w": gpu.board_power_w,
        "gpu_temperature_c": gpu.temperature_c,
        "gpu_clock_mhz": gpu.sm_clock_mhz,
    }


def _sum_known(values: Iterable[float | None]) -> float | None:
    """Add up the known values; None without any."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
