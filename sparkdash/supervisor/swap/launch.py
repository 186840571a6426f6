"""Launch: the container of an engine, with all that the supervisor decides about its start.

Owns: ports, folders, labels and nodes of one launch. Must not know how an engine's command line is made: adapters do.
"""

from __future__ import annotations

from sparkdash.domain.container import LABEL_OWNER, ContainerSpec, with_marks
from sparkdash.domain.node import LOCAL, NodeLaunch
from sparkdash.domain.profile import Profile
from sparkdash.engines.adapter import LaunchContext
from sparkdash.engines.known_flags import KnownFlags
from sparkdash.supervisor.tools import Tools


def launch_nodes(tools: Tools, nodes: tuple[str, ...]) -> tuple[NodeLaunch, ...]:
    """Return what a launch must know of its nodes; nothing for this box alone.

    Raises:
        HostError: node_unknown, node_unreachable, no_common_link.
    """
    return () if nodes == (LOCAL,) else tools.nodes.launch_on(nodes)


def engine_container(tools: Tools, target: Profile, nodes: tuple[str, ...], flags: KnownFlags | None) -> ContainerSpec:
    """Build the container of `target` on these nodes, the serving one first.

    Raises:
        HostError: port_in_use, or as `launch_nodes`.
        ProfileError: the profile lacks what its engine needs.
    """
    settings, on = tools.settings, launch_nodes(tools, nodes)
    given = {engine.port for engine in tools.books.loading(but=target.name)}
    port = tools.ports.take(given)
    launch = LaunchContext(
        port=port,
        containerised=tools.runtime.containerised,
        hf_home=on[0].hf_home if on else str(settings.hf_home.expanduser()),
        cache_dir=on[0].cache_dir if on else str(settings.cache_dir.expanduser()),
        labels={LABEL_OWNER: tools.owner},
        flags=flags,
        nodes=on,
        master_port=tools.ports.take({*given, port}) if len(on) > 1 else 0,
    )
    spec = tools.adapter(target).container(target, launch)
    return with_marks(spec, tools.owner)
