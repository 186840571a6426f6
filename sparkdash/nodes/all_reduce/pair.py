"""All-reduce between this box and a node: what must hold before it, and its parts.

Owns: the check that it fits beside what runs, the launch of both boxes, their runtimes. Must not know what a rank does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sparkdash.domain.node import LOCAL, Link, Node, NodeFacts, NodeLaunch
from sparkdash.domain.profile import Profile
from sparkdash.errors import AdmissionError, HostError, ProfileError
from sparkdash.host.podman.podman import Podman
from sparkdash.host.runtime import Runtime
from sparkdash.nodes.all_reduce.ranks import NEED
from sparkdash.nodes.all_reduce.run import AllReduceInputs, run_all_reduce
from sparkdash.nodes.link.box import Box
from sparkdash.nodes.link.measure import known_facts, links_of
from sparkdash.nodes.link.open_boxes import OpenBoxes
from sparkdash.nodes.link.record import LinkRun
from sparkdash.nodes.podman_over_ssh import remote_podman
from sparkdash.settings import Settings
from sparkdash.units import GIB, KIB, gib

READ_S = 10.0


async def all_reduce_with(
    boxes: OpenBoxes, node: Node, profile: Profile, settings: Settings, progress: Callable[[str], None]
) -> LinkRun:
    """Measure the all-reduce between this box and `node` through the profile's image.

    Raises:
        ProfileError: the profile has no image, or the settings run engines as plain processes.
        AdmissionError: does_not_fit, when a box has too little memory beside what runs.
        HostError, EngineError: as `run_all_reduce`.
    """
    if settings.runtime == "process" or profile.image is None:
        raise ProfileError(
            f"{profile.name} runs without an image, and the all-reduce needs one.",
            code="no_image",
            hint="Name a profile with an `image`, such as one for two nodes.",
        )
    there = {each.name: box for each, box in boxes.nodes}[node.name]
    best = links_of(boxes.here, there, node)[0]
    pair = (boxes.here, there)
    await asyncio.gather(*(_require_memory(box, int(settings.reserve_gib * GIB)) for box in pair))
    nodes = (_launch(boxes.here, best.here), _launch(there, best.there))
    runtimes: dict[str, Runtime] = {
        LOCAL: Podman(settings.runtime),
        node.name: remote_podman(boxes.connections[node.name], settings.runtime),
    }
    facts: dict[str, NodeFacts] = {box.name: known_facts(box) for box in pair}
    return await run_all_reduce(AllReduceInputs(profile, nodes, runtimes, facts), progress)


def _launch(box: Box, link: Link) -> NodeLaunch:
    """Launch of one rank; it mounts neither weights nor caches."""
    return NodeLaunch(name=box.name, address=str(link.address), hf_home="/", cache_dir="/", link=link)


async def _require_memory(box: Box, reserve: int) -> None:
    """Refuse when a rank would take memory that engines or the reserve need."""
    if box.commands is None:
        raise box.silent or HostError(f"{box.name} cannot be reached.", code="node_unreachable")
    done = await box.commands.run(("cat", "/proc/meminfo"), deadline_s=READ_S)
    available = _available(done.out)
    if available is None:
        raise HostError(f"/proc/meminfo of {box.shown} has no MemAvailable.", code="memory_unknown")
    if available < NEED + reserve:
        raise AdmissionError(
            f"An all-reduce needs {gib(NEED)} on each box; {gib(max(available - reserve, 0))} are available on "
            f"{box.shown} beside the {gib(reserve)} that are kept free.",
            code="does_not_fit",
            status=503,
            hint="Stop an engine first: `sparkdash stop`.",
        )


def _available(meminfo: str) -> int | None:
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and value.split():
            return int(value.split()[0]) * KIB
    return None
