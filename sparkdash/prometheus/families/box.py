"""Families of the box and of the daemon itself: memory, GPU, guard, links, database.

Loads prometheus_client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import Metric as MetricFamily

from sparkdash.domain.memory import GuardLevel
from sparkdash.domain.metric import Gpu, Memory, NodeSample
from sparkdash.domain.node import LOCAL
from sparkdash.prometheus.families.making import Rows, counter, gauge
from sparkdash.prometheus.scraped_state import ScrapedState

NODE = ("node",)
GPU = ("node", "gpu")
ONLY_GPU = "0"
HERTZ = 1e6
"""Hertz in a megahertz."""
WATT_HOUR = 3600.0
"""Joules in a watt-hour."""


def families(state: ScrapedState) -> Iterator[MetricFamily]:
    """Make the families."""
    daemon = state.snapshot.daemon
    yield gauge("build_info", "Version of sparkdash, always 1.", ("version",), [([daemon.version], 1.0)])
    yield gauge(
        "start_time_seconds", "Start of the daemon, Unix seconds: all counters begin there.", (),
        [((), daemon.started_at)],
    )  # fmt: skip
    yield from _memory(_memories(state))
    yield from _gpus(_all_gpus(state))
    yield from _guard(state)
    nodes = state.snapshot.sample.nodes if state.snapshot.sample else {}
    yield from _links(nodes)
    yield from _energy(state)
    yield gauge("store_bytes", "Size of the database on disk.", (), [((), state.store_bytes)])
    yield gauge("store_limit_bytes", "Largest size of the database.", (), [((), state.store_limit_bytes)])


def _memories(state: ScrapedState) -> dict[str, Memory]:
    """Memory of each node that is known, this one's under LOCAL."""
    sample = state.snapshot.sample
    if sample is None:
        return {}
    found = {name: node.memory for name, node in sample.nodes.items() if node.memory is not None}
    return found | ({LOCAL: sample.memory} if sample.memory is not None else {})


def _memory(memories: Mapping[str, Memory]) -> Iterator[MetricFamily]:
    yield gauge(
        "memory_bytes", "Memory by owner: a profile, other, cache, free, kept. Adds up to the total.",
        ("node", "owner"),
        (([node, owner], held) for node, memory in memories.items() for owner, held in memory_by_owner(memory).items()),
    )  # fmt: skip
    yield gauge("memory_total_bytes", "Memory of the node.", NODE, (([n], m.total) for n, m in memories.items()))
    yield gauge(
        "memory_available_bytes", "Memory that programs can get, by the kernel's own estimate.", NODE,
        (([node], memory.available) for node, memory in memories.items()),
    )  # fmt: skip
    yield gauge(
        "memory_pressure_ratio", "Share of the last 10 s in which all tasks waited for memory, 0 to 1.", NODE,
        (([node], memory.pressure) for node, memory in memories.items()),
    )  # fmt: skip


def memory_by_owner(memory: Memory) -> dict[str, int]:
    """Divide the whole memory among its owners; the sum is the total.

    An engine of unknown size is part of `other`. `kept` is the part of the free memory that admission keeps.
    """
    left = memory.total
    found: dict[str, int] = {}

    def take(owner: str, held: int) -> None:
        nonlocal left
        found[owner] = found.get(owner, 0) + min(max(held, 0), left)
        left -= min(max(held, 0), left)

    kept = min(memory.reserve, memory.free)
    take("kept", kept)
    take("free", memory.free - kept)
    for profile, held in memory.engines.items():
        if held is not None:
            take(profile, held)
    take("cache", memory.page_cache or 0)
    take("other", left)
    return found


def _all_gpus(state: ScrapedState) -> dict[str, Gpu]:
    sample = state.snapshot.sample
    if sample is None:
        return {}
    found = {name: node.gpu for name, node in sample.nodes.items() if node.gpu is not None}
    return found | ({LOCAL: sample.gpu} if sample.gpu is not None else {})


def _gpus(gpus: Mapping[str, Gpu]) -> Iterator[MetricFamily]:
    yield gauge(
        "gpu_utilization_ratio", "Share of time in which the GPU computed, 0 to 1.", GPU,
        (([node, ONLY_GPU], gpu.utilization) for node, gpu in gpus.items()),
    )  # fmt: skip
    yield gauge(
        "gpu_clock_hertz", "Clock of the GPU's multiprocessors.", GPU,
        (([node, ONLY_GPU], None if gpu.sm_clock_mhz is None else gpu.sm_clock_mhz * HERTZ)
         for node, gpu in gpus.items()),
    )  # fmt: skip
    yield gauge(
        "gpu_temperature_celsius", "Temperature of the GPU.", GPU,
        (([node, ONLY_GPU], gpu.temperature_c) for node, gpu in gpus.items()),
    )  # fmt: skip
    yield gauge(
        "gpu_power_watts", "Power of the GPU, without the rest of the box.", GPU,
        (([node, ONLY_GPU], gpu.power_w) for node, gpu in gpus.items()),
    )  # fmt: skip


def _guard(state: ScrapedState) -> Iterator[MetricFamily]:
    guard = state.snapshot.guard
    if guard is None:
        return
    words = ("off", *GuardLevel)
    current = "off" if guard.mode == "off" else guard.level
    rows: Rows = (([LOCAL, word], float(word == current)) for word in words)
    yield gauge("guard_state", "1 for the memory guard's level, 0 for every other one.", ("node", "state"), rows)
    yield counter("guard_acts", "Engines that the memory guard ended.", ("node", "act"), [
        ([LOCAL, "kill"], state.swaps.kills)
    ])  # fmt: skip


def _energy(state: ScrapedState) -> Iterator[MetricFamily]:
    sample = state.snapshot.sample
    energy = sample.energy if sample else None
    used = () if energy is None else (("busy", energy.busy_wh), ("idle", energy.idle_wh))
    sensor = "" if energy is None else energy.sensor
    yield counter(
        "energy_joules", "Energy by the named sensor, while requests ran (busy) and while none did (idle).",
        ("node", "sensor", "use"),
        (([LOCAL, sensor, use], hours * WATT_HOUR) for use, hours in used),
    )  # fmt: skip
    served = {} if sample is None else {name: engine.gateway for name, engine in sample.engines.items()}
    yield counter(
        "energy_profile_joules", "Energy while requests of the profile ran, shared by tokens with other profiles.",
        ("profile",),
        (([name], figures.energy_wh * WATT_HOUR)
         for name, figures in served.items() if figures is not None and figures.energy_wh is not None),
    )  # fmt: skip


def _links(nodes: Mapping[str, NodeSample]) -> Iterator[MetricFamily]:
    links = [(node, link) for node, sample in nodes.items() for link in sample.links]
    both = [
        ([node, link.name, direction], total)
        for node, link in links
        for direction, total in (("received", link.received_bytes), ("sent", link.sent_bytes))
    ]
    yield counter(
        "link_bytes", "Bytes over the link since the connection to the node was made.",
        ("node", "device", "direction"), both,
    )  # fmt: skip
    yield counter(
        "link_errors", "Receive and transmit errors of the link since the connection to the node was made.",
        ("node", "device"),
        (([node, link.name], link.errors) for node, link in links),
    )  # fmt: skip
