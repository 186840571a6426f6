"""Figures of engines and nodes that are joined: which profile holds which memory, and the link's share of a step.

Owns: both joins. Must not know how figures are read.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparkdash.domain.container import CONTAINER_PREFIX
from sparkdash.domain.engine import Engine
from sparkdash.domain.metric import EngineSample, Metric, NodeSample
from sparkdash.domain.text.node_text import link_share


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
    """Profiles on several nodes that work on requests now, as far as they tell."""
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
    """Add Metric.LINK_SHARE to the engine on several nodes that worked over the whole tick.

    With two of them at work nobody can tell whose traffic it is, and the share stays unknown.
    """
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
