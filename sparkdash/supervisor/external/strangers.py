"""Containers that are not ours and take of what our engines need: the GPU, memory through another sparkdash, a port.

Owns: who counts as one. They are named and never touched; their memory is simply not there.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sparkdash.domain.container import LABEL_OWNER, LABEL_PROFILE, ContainerInfo, ContainerState, Stranger
from sparkdash.domain.event import Level
from sparkdash.errors import SparkdashError
from sparkdash.host.processes import leftovers
from sparkdash.settings import Settings
from sparkdash.supervisor.tools import Tools


async def find_strangers(tools: Tools) -> dict[Stranger, set[int]]:
    """Return the foreign containers that run now, with host process ids. Raises HostError when the runtime fails."""
    found = await _here(tools)
    pids = await asyncio.to_thread(leftovers.processes_in_containers, found.keys()) if found else {}
    return {one: pids[id_] for id_, one in found.items()}


async def _here(tools: Tools) -> dict[str, Stranger]:
    """Foreign containers by container id."""
    here = await tools.runtime.containers({})
    return {each.id: one for each in here if (one := as_stranger(each, tools.owner, tools.settings))}


def as_stranger(container: ContainerInfo, owner: str, settings: Settings) -> Stranger | None:
    """Describe a foreign container that uses the GPU or our ports; None when it is ours, has ended, or is in nobody's
    way.
    """
    if container.state is not ContainerState.RUNNING or container.labels.get(LABEL_OWNER) == owner:
        return None
    first, last = settings.engine_ports
    ports = tuple(port for port in container.ports if first <= port <= last or port == settings.port)
    if not (LABEL_PROFILE in container.labels or container.gpu or ports):
        return None
    return Stranger(name=container.name, image=container.image, gpu=container.gpu, ports=ports)


async def report_strangers(tools: Tools) -> None:
    """Publish a notice of foreign containers, once. Runtime failures are reported elsewhere."""
    with suppress(SparkdashError):
        if found := [f"{each.name} ({each.image or 'no image'})" for each in (await _here(tools)).values()]:
            held = "What they hold of the memory is not there for our engines."
            text = f"Not ours, and left alone: {', '.join(found)}. {held}"
            tools.books.notice(Level.INFO, "foreign_container", text)
