"""Profiles and settings read again while the daemon serves."""

import asyncio
from contextlib import suppress

from sparkdash import catalog
from sparkdash.catalog import Catalog
from sparkdash.catalog.catalog import with_replicas
from sparkdash.catalog.load import keep_last_good
from sparkdash.daemon.daemon import Daemon, Parts
from sparkdash.daemon.profile_files import ANSWER_S, READ_S, ProfileFiles
from sparkdash.domain.event import ProfilesChanged
from sparkdash.engines import registry
from sparkdash.host.thread import in_thread

LOOK_S = (2.0, 5.0)
"""Pauses between looks at the files, with listeners and without. Whoever asks for profiles has them read before."""
LOOKS = 10
"""Looks at a file that is written all the time, before it is left for the next refresh."""


async def reload(daemon: Daemon) -> None:
    async with daemon.reload_lock:
        await daemon.files.look(READ_S, reread=True)
        if daemon.others is not None:
            daemon.others.reload()
        await _read(daemon)
    if daemon.others is not None:  # whoever added a node may use it at once
        await daemon.others.connected()


async def reread_settings(daemon: Daemon) -> None:
    async with daemon.reload_lock:
        await _read_settings(daemon)


async def _read_settings(daemon: Daemon) -> None:
    if settings := await daemon.rereading.read(daemon.supervisor.settings):
        daemon.supervisor.replace_settings(settings)


async def refresh(daemon: Daemon) -> None:
    """Read profiles and settings again if a file was edited; waits ANSWER_S at most for folders that hang."""
    try:
        async with asyncio.timeout(ANSWER_S):
            await daemon.reload_lock.acquire()
    except TimeoutError:
        return
    try:
        if await _edited(daemon.files):
            await _read(daemon)
    finally:
        daemon.reload_lock.release()


async def _edited(files: ProfileFiles) -> bool:
    changed = False
    for _ in range(LOOKS):
        found = await files.look()
        changed = changed or found.changed
        if found.due_s is None:
            break
        await asyncio.sleep(found.due_s)
    return changed


async def _read(daemon: Daemon) -> None:
    await _read_settings(daemon)
    read = await current_catalog(daemon.parts, daemon.files)
    profiles = with_replicas(keep_last_good(daemon.supervisor.catalog, read), daemon.node_names)
    daemon.supervisor.replace_catalog(profiles)
    publish_profiles(daemon, profiles)


async def current_catalog(parts: Parts, files: ProfileFiles) -> Catalog:
    """Return the catalog of the files at their last look, or the demo's."""
    return await in_thread(parts.load_catalog) if parts.load_catalog else files.catalog()


async def watch_files(daemon: Daemon) -> None:
    """Refresh at intervals until cancelled."""
    while True:
        await _pause(daemon)
        await refresh(daemon)


async def _pause(daemon: Daemon) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(daemon.bus.watched.wait(), LOOK_S[1])
        await asyncio.sleep(LOOK_S[0])


def publish_profiles(daemon: Daemon, profiles: Catalog) -> None:
    """Publish the catalog's profiles and problems if they differ from the snapshot's."""
    supervisor, now = daemon.supervisor, daemon.bus.snapshot
    listed = tuple(
        catalog.summarize(p, registry.adapter_of(p), supervisor.need(p), sees=supervisor.sees(p))
        for p in profiles.profiles.values()
    )
    problems = tuple(str(problem) for problem in profiles.problems)
    if (listed, problems) != (now.profiles, now.problems):
        daemon.bus.publish(ProfilesChanged(profiles=listed, problems=problems))
