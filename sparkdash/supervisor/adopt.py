"""What an earlier daemon left running.

Owns: the decision what becomes of each container that carries our owner label, and carrying it out. Containers of
others are not seen here at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkdash.catalog import Catalog
from sparkdash.domain.container import (
    LABEL_FINGERPRINT,
    LABEL_OWNER,
    LABEL_PORT,
    LABEL_PROFILE,
    ContainerInfo,
    ContainerState,
)
from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import Level
from sparkdash.domain.profile import Profile
from sparkdash.errors import SparkdashError
from sparkdash.supervisor.stopping import tell
from sparkdash.supervisor.tools import Tools
from sparkdash.supervisor.transition import unreachable, version_of

TRIES = 3
"""Probes before an engine that runs and does not answer is given up: it may be busy, or it was loading when its daemon died."""
PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Found:
    """A container that may be adopted."""

    container: ContainerInfo
    profile: Profile
    port: int

    @property
    def url(self) -> str:
        """The engine's root URL."""
        return f"http://127.0.0.1:{self.port}"


async def adopt(tools: Tools, catalog: Catalog) -> list[Profile]:
    """Put what runs and answers into the books; remove our other containers. Never raises for one that misbehaves.

    At most one is adopted, the youngest: one managed engine is resident at a time.
    """
    try:
        ours = await tools.runtime.containers({LABEL_OWNER: tools.owner})
    except SparkdashError as error:
        tools.books.notice(Level.ERROR, error.code, f"Engines that may run already were not looked for: {error.text()}")
        return []
    adopted: list[Profile] = []
    for container in sorted(ours, key=lambda c: c.started_at or 0.0, reverse=True):
        why = "another engine was adopted" if adopted else await _take(tools, catalog, container, adopted)
        if why:
            await _remove(tools, container, why)
    return adopted


async def _take(tools: Tools, catalog: Catalog, container: ContainerInfo, adopted: list[Profile]) -> str | None:
    """Adopt it, or tell why not."""
    found = _match(catalog, container)
    if isinstance(found, str):
        return found
    if why := await _silent(tools, found):
        return f"it does not answer ({why})"
    profile = found.profile
    tools.books.enter(
        profile,
        EngineState.READY,
        port=found.port,
        url=found.url,
        container=container.name,
        ready_at=container.started_at or tools.clock.now(),
        version=await version_of(tools, profile, found.url),
        adopted=True,
    )
    tools.logbook.adopt(profile.name, container.name)
    tools.wards.add(profile, container)
    adopted.append(profile)
    return None


def _match(catalog: Catalog, container: ContainerInfo) -> Found | str:
    """What it is, or why it cannot be adopted."""
    labels = container.labels
    if container.state is not ContainerState.RUNNING:
        return "it has ended"
    profile = catalog.profiles.get(labels.get(LABEL_PROFILE, ""))
    if profile is None:
        return "its profile is no longer there"
    if labels.get(LABEL_FINGERPRINT) != profile.fingerprint:
        return "its profile has changed since"
    port = labels.get(LABEL_PORT, "")
    return Found(container, profile, int(port)) if port.isdecimal() else "it does not tell its port"


async def _silent(tools: Tools, found: Found) -> str | None:
    why = None
    for _ in range(TRIES):
        if not (why := await unreachable(tools, found.profile, found.url)):
            return None
        await tools.clock.sleep(PAUSE_S)
    return why


async def _remove(tools: Tools, container: ContainerInfo, why: str) -> None:
    name = container.labels.get(LABEL_PROFILE)
    running = container.state is ContainerState.RUNNING
    try:
        left = await tools.runtime.stop(container.name, tools.settings.stop_grace_s)
    except SparkdashError as error:
        tools.books.notice(
            Level.ERROR, error.code, f"{container.name} is left over and cannot be removed: {error.text()}", name
        )
        return
    tell(tools.books, name or container.name, left)
    if running:
        tools.books.gone(name or container.name)
        text = f"{container.name} was running and has been stopped: {why}."
        tools.books.notice(Level.WARNING, "not_adopted", text, name)
