"""Nodes of a launch as the registry knows them, with placeholders for what is found at a start.

Owns: the placeholders' names. Must not know: connections, the daemon.
"""

from __future__ import annotations

from sparkdash.domain.node import LOCAL, Link, Node, NodeLaunch
from sparkdash.domain.profile import Profile
from sparkdash.settings import Settings

UNKNOWN_NODE = "SECOND_NODE"
"""Name of a worker's node where no other node was added."""

EXPLAINED = "Words such as ADDRESS_OF_… stand for what sparkdash finds on each node at a start."


def planned_nodes(profile: Profile, known: Settings, others: tuple[Node, ...]) -> tuple[NodeLaunch, ...]:
    """Return the nodes that a launch of the profile would have; () for this box alone."""
    if profile.nodes == 1:
        return () if profile.node in (None, LOCAL) else (_other(profile.node, others, alone=True),)
    workers = [node.name for node in others][: profile.nodes - 1]
    workers += [UNKNOWN_NODE] * (profile.nodes - 1 - len(workers))
    return (_local(known), *(_other(name, others) for name in workers))


def _local(known: Settings) -> NodeLaunch:
    return NodeLaunch(
        name=LOCAL,
        address=f"ADDRESS_OF_{LOCAL}",
        hf_home=str(known.hf_home.expanduser()),
        cache_dir=str(known.cache_dir.expanduser()),
        link=_link(LOCAL, None),
    )


def _other(name: str | None, others: tuple[Node, ...], *, alone: bool = False) -> NodeLaunch:
    name = name or UNKNOWN_NODE
    node = next((one for one in others if one.name == name), None)
    home = f"/HOME_OF_{name}/.cache"
    return NodeLaunch(
        name=name,
        address="127.0.0.1" if alone else (node and node.address) or f"ADDRESS_OF_{name}",
        hf_home=(node and node.hf_home) or f"{home}/huggingface",
        cache_dir=f"{home}/sparkdash",
        link=None if alone else _link(name, node),
    )


def _link(name: str, node: Node | None) -> Link:
    return Link(interface=(node and node.interface) or f"INTERFACE_OF_{name}", hca=f"HCA_OF_{name}")
