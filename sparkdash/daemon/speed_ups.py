"""Measured speed-ups in the daemon: read after its start, and after each run of the bench.

Owns: when they are read. Must not know: runs, how a speed-up is judged.
"""

from __future__ import annotations

import asyncio
from importlib import import_module

import structlog

from sparkdash.daemon.daemon import Daemon
from sparkdash.daemon.reloading import publish_profiles
from sparkdash.domain.event import Event, MeasuringChanged
from sparkdash.errors import SparkdashError

LOG = structlog.get_logger("sparkdash")
FIRST_S = 5.0
"""Pause after the start, which has more urgent work for the cores."""


async def watch_runs(daemon: Daemon) -> None:
    """Read the speed-ups, then again whenever a measurement has ended, until the bus ends."""
    subscription = daemon.bus.subscribe(samples=False, requests=False)
    try:
        await asyncio.sleep(FIRST_S)
        await read_again(daemon)
        async for item in subscription:
            if isinstance(item, Event) and isinstance(item.fact, MeasuringChanged) and item.fact.measuring is None:
                await read_again(daemon)
    finally:
        subscription.leave()


async def read_again(daemon: Daemon) -> None:
    """Read the speed-ups, and publish the profiles where one changed. Runs that cannot be read change nothing."""
    await asyncio.to_thread(import_module, "sparkdash.bench.processes")
    from sparkdash.bench.processes import read_speed_ups

    try:
        found = await read_speed_ups(simulated=daemon.parts.simulated)
    except SparkdashError as error:
        LOG.warning("the speed-ups of measured runs cannot be read", error=str(error))
        return
    daemon.speed_ups = {one.profile: one for one in found}
    publish_profiles(daemon, daemon.supervisor.catalog)
