"""Stock of nodes: which images and weights of profiles the other nodes have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial

from sparkdash.domain.images import NodeStock
from sparkdash.domain.profile import ModelRef, ProfileSummary
from sparkdash.errors import HostError
from sparkdash.nodes.directory import NodeDirectory
from sparkdash.nodes.programs import ask

LOOK_S = 3.0
"""Deadline of the look at a node's disk."""
WEIGHTS = ("sparkdash.host.local_weights",)


async def stock_of_nodes(
    directory: NodeDirectory, profiles: Sequence[ProfileSummary]
) -> dict[str, dict[str, NodeStock]]:
    """Find what of these profiles each reachable node has, by profile and node."""
    nodes = [name for name, state in directory.states.items() if directory.reachable(state.name)]
    found = await asyncio.gather(*(_stock_of(directory, node, profiles) for node in nodes))
    return {
        one.name: {node: stock[one.name] for node, stock in zip(nodes, found, strict=True) if one.name in stock}
        for one in profiles
    }


async def _stock_of(directory: NodeDirectory, node: str, profiles: Sequence[ProfileSummary]) -> dict[str, NodeStock]:
    models = list(dict.fromkeys(ref for one in profiles for ref in one.weights))
    images = list(dict.fromkeys(one.image for one in profiles if one.image))
    try:
        sizes, here = await asyncio.gather(
            directory.runtime(node).images(images), _models_there(directory, node, models)
        )
    except HostError:
        return {}
    return {
        one.name: NodeStock(
            image=one.image in sizes if one.image else None,
            weights=all(here[ref] for ref in one.weights) if one.weights else None,
        )
        for one in profiles
    }


async def _models_there(directory: NodeDirectory, node: str, models: Sequence[ModelRef]) -> dict[ModelRef, bool]:
    (launch,) = directory.launch_on((node,))
    asked = [{"ref": ref.ref, "hf": ref.hf, "revision": ref.revision} for ref in models]
    words = launch.hf_home, json.dumps(asked)
    found = await ask(
        node, directory.connection(node).run, WEIGHTS, *words, deadline_s=LOOK_S, failed=partial(_failed, node)
    )
    return dict(zip(models, found, strict=True))


def _failed(node: str, words: str) -> HostError:
    return HostError(f"The models of {node} cannot be listed: {words}.", code="node_stock_unknown")
