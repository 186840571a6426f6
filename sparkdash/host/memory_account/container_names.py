"""Names of the containers on this box, from every runtime that may know them.

Owns: which runtimes are asked, and their deadlines. Must not know which containers are ours, or their memory.
Rule: a hanging or missing runtime costs seconds at most, and its containers keep their short ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from sparkdash.domain.container import LABEL_OWNER, LABEL_PROFILE, ContainerInfo, ContainerState
from sparkdash.errors import HostError
from sparkdash.host.command import run_command
from sparkdash.host.memory_account.owners import Container
from sparkdash.host.runtime import Runtime

OWN_S = 5.0
"""Deadline of our own runtime: two short calls."""
OTHER_S = 3.0
"""Deadline of another runtime."""
OTHERS = ("podman", "docker", "nerdctl")
"""Programs that list containers in the same format."""

_LIST = ("ps", "--no-trunc", "--format", "{{.ID}}\t{{.Names}}\t{{.Image}}")


class RunningContainers(NamedTuple):
    """Running containers by id and by process."""

    by_id: dict[str, Container]
    by_pid: dict[int, Container]
    """Containers by the host pid of their first process."""


async def containers_of_runtime(runtime: Runtime, owner: str) -> RunningContainers:
    """List the containers of our own runtime; empty while it does not answer. `owner` marks our engines."""
    try:
        async with asyncio.timeout(OWN_S):
            found = await runtime.containers({})
    except (HostError, TimeoutError):
        return RunningContainers({}, {})
    running = [(each, _named(each, runtime.name, owner)) for each in found if each.state is ContainerState.RUNNING]
    return RunningContainers(
        {each.id: named for each, named in running}, {each.pid: named for each, named in running if each.pid}
    )


async def containers_of_others(unknown: Mapping[str, Collection[str]], asked: str) -> dict[str, Container]:
    """List containers of other runtimes; `unknown` has ids by runtime, `asked` is our own, which is skipped."""
    wanted = [runtime for runtime in OTHERS if runtime in unknown and runtime != asked]
    listed = await asyncio.gather(*(_listed(runtime) for runtime in wanted))
    return {id_: named for each in listed for id_, named in each.items()}


async def _listed(runtime: str) -> dict[str, Container]:
    try:
        done = await run_command((runtime, *_LIST), deadline_s=OTHER_S)
    except OSError:  # not installed, or hanging: TimeoutError is an OSError
        return {}
    rows = [line.split("\t") for line in done.out.splitlines()]
    return {id_: Container(name, runtime, image) for id_, name, image in (row for row in rows if len(row) == 3)}


def _named(found: ContainerInfo, runtime: str, owner: str) -> Container:
    ours = found.labels.get(LABEL_OWNER) == owner
    return Container(found.name, runtime, found.image, found.labels.get(LABEL_PROFILE) if ours else None)
