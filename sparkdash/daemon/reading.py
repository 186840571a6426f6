"""The owner's files, read again while the daemon serves.

Owns: when they are looked at, and the way of what was read to the supervisor and to the screens.
Must not know what is in them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from sparkdash import catalog
from sparkdash.catalog import Catalog
from sparkdash.catalog.watch import keeping
from sparkdash.daemon.house import House, Parts
from sparkdash.daemon.profile_files import ANSWER_S, READ_S, ProfileFiles
from sparkdash.domain.event import Level, Notice, ProfilesChanged
from sparkdash.engines import registry
from sparkdash.host.thread import in_thread

LOOK_S = (2.0, 15.0)
"""Pauses between looks at the profile files without a known edit: with listeners, and without, so that an idle box
sleeps. The kernel reports no edits on another box or behind a link, and none where it has no inotify.
"""
LOOKS = 10
"""Until a file that is written all the time is left for the next look; who asked meanwhile gets what held before."""


async def reload(house: House) -> None:
    """Read the profiles and the settings again, edited or not: who asks for it has written them."""
    async with house.reading:
        await house.files.look(READ_S, reread=True)
        await _read(house)


async def refresh(house: House) -> None:
    """Read the profiles and the settings again if a file was edited since the last look.

    A folder that does not answer is not waited for, nor is a long reading: the last known state holds.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            await house.reading.acquire()
    except TimeoutError:
        return
    try:
        if await _edited(house.files):
            await _read(house)
    finally:
        house.reading.release()


async def _edited(files: ProfileFiles) -> bool:
    """Is there anything new that is whole by now?"""
    changed = False
    for _ in range(LOOKS):
        found = await files.look()
        changed = changed or found.changed
        if found.due_s is None:
            break
        await asyncio.sleep(found.due_s)
    return changed


async def _read(house: House) -> None:
    if house.rereading and (settings := await house.rereading.read(house.supervisor.settings)):
        house.supervisor.replace_settings(settings)
    profiles = keeping(house.supervisor.catalog, await catalog_of(house.parts, house.files))
    house.supervisor.replace_catalog(profiles)
    publish_profiles(house, profiles)
    _tell_silent(house)


async def catalog_of(parts: Parts, files: ProfileFiles) -> Catalog:
    """Catalog of the files at their last look, or of the profiles made in place of files."""
    return await in_thread(parts.load_catalog) if parts.load_catalog else files.catalog()


def _tell_silent(house: House) -> None:
    before, now = house.silent_folders, house.files.silent
    house.silent_folders = now
    for folder in sorted(now - before):
        text = (
            f"The profile folder {folder} does not answer. Its profiles stay as they were last read. "
            "Check whether its mount hangs."
        )
        house.bus.publish(Notice(level=Level.WARNING, code="folder_silent", text=text))
    for folder in sorted(before - now):
        text = f"The profile folder {folder} answers again."
        house.bus.publish(Notice(level=Level.INFO, code="folder_answers", text=text))


async def watched(house: House) -> None:
    """Refresh until cancelled: when the kernel reports an edit, and at intervals, as the kernel does not report all
    edits.
    """
    _tell_silent(house)
    while True:
        await _until_due(house)
        await refresh(house)


async def _until_due(house: House) -> None:
    edited, pause = asyncio.create_task(house.edited.wait()), asyncio.create_task(_pause(house))
    try:
        await asyncio.wait((edited, pause), return_when=asyncio.FIRST_COMPLETED)
    finally:
        edited.cancel(), pause.cancel()
    house.edited.clear()


async def _pause(house: House) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(house.bus.watched.wait(), LOOK_S[1])
        await asyncio.sleep(LOOK_S[0])


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
