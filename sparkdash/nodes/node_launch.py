"""Facts of a node that a launch needs: its address, its cache folders, and a link that all nodes share.

Owns: the folders of another box, and the error of boxes without a common network. Must not know how a node is reached.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkdash.domain.node import Link, Node, NodeFacts, NodeLaunch
from sparkdash.errors import HostError
from sparkdash.nodes.link.liveness import called

LOOPBACK = "127.0.0.1"


def launch_on_node(node: Node, found: NodeFacts, link: Link | None) -> NodeLaunch:
    """Return what a launch on another node must know; `link` is the one that it shares with the launch's nodes."""
    hf_home = node.hf_home or "~/.cache/huggingface"
    return NodeLaunch(
        name=node.name,
        address=address_of(link),
        hf_home=_expanded(hf_home, found.home),
        cache_dir=f"{found.home}/.cache/sparkdash",
        link=link,
    )


def address_of(link: Link | None) -> str:
    """Return the address at which the launch's other nodes reach this one; loopback for a launch on one node."""
    return LOOPBACK if link is None or link.address is None else link.address


def no_common_link(offered: Mapping[str, list[Link]]) -> HostError:
    """Make the error for nodes without a common network."""
    seen = "; ".join(
        f"{called(name)}: {', '.join(f'{link.interface} {link.address}/{link.prefix}' for link in links) or 'none'}"
        for name, links in offered.items()
    )
    return HostError(
        f"{' and '.join(map(called, offered))} share no network ({seen}).",
        code="no_common_link",
        hint="Give the fast link's interfaces addresses of one network on both boxes, and try again after some "
        "seconds; docs/two-sparks.md says how.",
    )


def _expanded(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def links_unknown(name: str) -> HostError:
    """Make the error for a node whose links have not been read yet."""
    return HostError(
        f"The links of {called(name)} are not known yet.",
        code="node_unreachable",
        hint="They are read within seconds after the start; try again.",
    )
