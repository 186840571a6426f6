"""The owner's files, read again while the daemon serves.

Owns: when they are looked at, and the way of what was read to the supervisor and to the screens.
Must not know what is in them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sparkdash import catalog
from sparkdash.catalog import Catalog
from sparkdash.catalog.watch import Watch, keeping
from sparkdash.daemon.house import House
from sparkdash.domain.event import ProfilesChanged
from sparkdash.engines import registry

LOOK_S = (2.0, 15.0)
"""Pauses between looks at the profile files: while somebody listens, and while nobody does, so that an idle box sleeps."""
LOOKS = 10
"""Until a file that is written all the time is left for the next look; who asked meanwhile gets what held before."""


async def reload(house: House) -> None:
    """Read the profiles and the settings again, edited or not: who asks for it has written them."""
    async with house.reading:
        await _read(house)


async def refresh(house: House) -> None:
    """Read the profiles and the settings again if a file was edited since the last look."""
    async with house.reading:
        if await _edited(house.watch):
            await _read(house)


async def _edited(watch: Watch) -> bool:
    """Is there anything new that is whole by now?"""
    for _ in range(LOOKS):
        due_s = await asyncio.to_thread(watch.due)
        if not due_s:
            return due_s is not None
        await asyncio.sleep(due_s)
    return False


async def _read(house: House) -> None:
    if house.rereading and (settings := await house.rereading.read(house.supervisor.settings)):
        house.supervisor.replace_settings(settings)
    read = await asyncio.to_thread(house.parts.load_catalog)
    profiles = keeping(house.supervisor.catalog, read)
    house.supervisor.replace_catalog(profiles)
    publish_profiles(house, profiles)


async def watched(house: House) -> None:
    """Refresh for ever."""
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(house.bus.watched.wait(), LOOK_S[1])
            await asyncio.sleep(LOOK_S[0])
        await refresh(house)


def publish_profiles(house: House, profiles: Catalog) -> None:
    """Tell what the catalog says now, if that is something else."""
    supervisor, now = house.supervisor, house.bus.snapshot
    listed = tuple(
        catalog.summary(p, registry.adapter(p.engine), supervisor.need(p), sees=supervisor.sees(p))
        for p in profiles.profiles.values()
    )
    problems = tuple(str(problem) for problem in profiles.problems)
    if (listed, problems) != (now.profiles, now.problems):
        house.bus.publish(ProfilesChanged(profiles=listed, problems=problems))
