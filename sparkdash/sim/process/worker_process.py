"""Process of a simulated engine's worker: it loads its share of the model, and computes while the head does.

Owns: the worker's log, its claim on its own box, and its end by a signal. Must not know: requests, routes. Like vLLM's
own worker it does not notice by itself that its head is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from sparkdash.domain.profile import Profile, SimSpec
from sparkdash.sim.process import boot_log
from sparkdash.sim.process.memory_claims import HEAD_FOLDER_VARIABLE, ClaimFile, read_claims
from sparkdash.units import GIB

CLAIM_S = 0.25
"""Interval of looks at the head's claim."""
CONTEXT = 32768


async def run_worker(profile: Profile, port: int) -> int:
    """Run a worker until it is told to stop; return 0."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    claim = ClaimFile(profile.name)
    try:
        await _work(profile, port, claim, stop)
    finally:
        claim.remove()
    return 0


async def _work(profile: Profile, port: int, claim: ClaimFile, stop: asyncio.Event) -> None:
    spec = profile.sim or SimSpec()
    size = spec.memory_gib * GIB
    load_s = spec.load_s / spec.time_scale
    context = profile.context or CONTEXT
    began = time.monotonic()
    lines = list(boot_log.opening(profile, context, port))
    lines += boot_log.loading(
        profile, load_s=load_s, memory_gib=spec.memory_gib, kv_gib=0.0, kv_tokens=spec.kv_tokens, context=context
    )
    loaded = 0.0
    for line in lines:
        if await _ended(stop, began + line.at * load_s - time.monotonic()):
            return
        loaded = line.memory or loaded
        claim.write(int(loaded * size))
        stream = sys.stderr if line.bar else sys.stdout
        stream.write(line.text if line.bar else line.text + "\n")
        stream.flush()
    while not await _ended(stop, CLAIM_S):
        busy, watts = _head_use(profile.name)
        claim.write(int(size), busy, watts)


async def _ended(stop: asyncio.Event, seconds: float) -> bool:
    """Wait that long, or until the worker is told to stop; return whether it was."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await stop.wait()
    return stop.is_set()


def _head_use(profile: str) -> tuple[float, float | None]:
    """Return the head's share of its GPU and its watts: both ranks compute at the same time."""
    folder = os.environ.get(HEAD_FOLDER_VARIABLE)
    claims = read_claims(Path(folder)) if folder else []
    return next(((claim.busy, claim.power_w) for claim in claims if claim.profile == profile), (0.0, None))
