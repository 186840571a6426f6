"""Figures joined: the gateway's own count, the nodes' memory and links, and one reading for the judge of liveness.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import zip_longest

from sparkdash.domain.container import CONTAINER_PREFIX
from sparkdash.domain.engine import Engine
from sparkdash.domain.metric import EngineFigures, EngineSample, GatewayFigures, Gpu, Metric, NodeSample, TrafficLook
from sparkdash.domain.phrases import link_share
from sparkdash.engines.probes import MetricNames
from sparkdash.telemetry.energy import GPU_ONLY, WHOLE_BOX, Power
from sparkdash.telemetry.reading import Reading

_RATES = frozenset({Metric.DECODE, Metric.DECODE_EACH})
NOTHING_PASSED = TrafficLook({}, {}, None)
QUIET = GatewayFigures(decode_tok_s=0.0)
"""Figures of a profile that nobody asked yet."""


def total_power(gpu: Gpu | None, others: Iterable[Gpu | None] = ()) -> Power | None:
    """Return the power of the box, by its own sensor where it has one, with the GPUs of other nodes; None: unknown."""
    if gpu is None or (watts := gpu.power_w if gpu.board_power_w is None else gpu.board_power_w) is None:
        return None
    sensor = GPU_ONLY if gpu.board_power_w is None else WHOLE_BOX
    more = [other.power_w for other in others if other is not None and other.power_w is not None]
    if not more:
        return Power(watts, sensor)
    return Power((gpu.power_w or watts) + sum(more), f"{GPU_ONLY}, {1 + len(more)} boxes")


def with_gateway(
    samples: Mapping[str, EngineSample],
    looked: TrafficLook | None,
    serving: Iterable[str],
    at: float,
    late: Collection[str] = (),
) -> dict[str, EngineSample]:
    """Add the gateway's figures to each serving engine; of `late` ones, whose rates are bursts, they replace those."""
    if looked is None:
        return dict(samples)
    joined = dict(samples)
    for name in serving:
        known = samples.get(name, EngineSample(at=at))
        own = {metric: value for metric, value in known.values.items() if metric not in _RATES}
        values = own if name in late else known.values
        joined[name] = known.replace(values=values, gateway=looked.profiles.get(name, QUIET))
    return joined


def by_profile(nodes: Mapping[str, NodeSample], engines: Mapping[str, Engine]) -> dict[str, NodeSample]:
    """Name the memory of each node's containers by profile; a container of no known engine keeps its own name."""
    heads = {engine.container: name for name, engine in engines.items() if engine.container}
    return {name: _named(sample, heads) for name, sample in nodes.items()}


def _named(sample: NodeSample, heads: Mapping[str, str]) -> NodeSample:
    memory = sample.memory
    if memory is None or not memory.engines:
        return sample
    held: dict[str, int | None] = {}
    for container, size in memory.engines.items():
        head = container.rpartition("-worker")[0] or container
        name = heads.get(container) or heads.get(head) or container.removeprefix(CONTAINER_PREFIX)
        held[name] = (held.get(name) or 0) + (size or 0)
    return sample.replace(memory=memory.replace(engines=held))


def with_reserve(nodes: Mapping[str, NodeSample], reserve: int) -> dict[str, NodeSample]:
    """Add the bytes that are kept free on every node, which the owner's settings know and the node does not."""
    return {
        name: sample.replace(memory=sample.memory.replace(reserve=reserve)) if sample.memory else sample
        for name, sample in nodes.items()
    }


def working(engines: Mapping[str, Engine], samples: Mapping[str, EngineSample]) -> frozenset[str]:
    return frozenset(
        name
        for name, engine in engines.items()
        if len(engine.nodes) > 1 and name in samples and (samples[name].get(Metric.RUNNING) or 0) > 0
    )


def with_link_share(
    samples: Mapping[str, EngineSample],
    worked: Collection[str],
    nodes: Mapping[str, NodeSample],
    engines: Mapping[str, Engine],
) -> dict[str, EngineSample]:
    """Add Metric.LINK_SHARE where one engine on several nodes worked over the whole tick; of two nobody can tell."""
    found = dict(samples)
    if len(worked) != 1:
        return found
    (name,) = worked
    links = [link for node in engines[name].nodes if node in nodes for link in nodes[node].links]
    shares = [share for link in links if (share := link_share(link)) is not None]
    if name in found and shares:
        known = found[name]
        found[name] = known.replace(values={**known.values, Metric.LINK_SHARE: min(max(shares), 1.0)})
    return found


def figures_of(reading: Reading, names: MetricNames, before: EngineFigures) -> EngineFigures:
    """Raw figures of this reading; a counter that it lacks keeps its value of `before`."""
    counters, gauges = reading.counters, reading.gauges
    moving = (*reading.moving, *reading.moving_without_slots)
    told = (counters.generated, counters.prompted, counters.preemptions, *moving)
    earlier = before.progress[: len(told)]
    return EngineFigures(
        answered_at=reading.at,
        running=gauges.running,
        waiting=gauges.waiting,
        deferred=gauges.deferred,
        kv_used=gauges.kv_used,
        asleep=None if gauges.awake is None else gauges.awake == 0,
        progress=tuple(was if now is None else now for now, was in zip_longest(told, earlier)),
        prompt_progress=before.prompt_progress if counters.prefilled is None else counters.prefilled,
        uses_queue=names.slots is not None,
        is_live=names.is_live,
    )
