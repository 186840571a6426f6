"""Exclusive lease on the daemon for the length of a run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from sparkdash.client.client import AsyncClient
from sparkdash.domain.event import Measuring
from sparkdash.domain.request import LEASE_HEADER
from sparkdash.errors import SparkdashError

BEATS = 3
LAPSE_S = 20.0
"""Slightly more than the 15 s after which the daemon ends a silent lease."""


@dataclass(slots=True)
class LeaseHeartbeat:
    """Contents of each renewal, and the reaction to a request to end."""

    expected_s: Callable[[], float | None]
    measuring: Callable[[], Measuring | None]
    ends: Callable[[], None]
    news: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def hold_box(
    client: AsyncClient,
    holder: str,
    headers: MutableMapping[str, str],
    pulse: LeaseHeartbeat,
    *,
    patience_s: float = LAPSE_S,
    waits: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[None]:
    """Hold the lease inside the block. `headers` always carry the current token.

    `patience_s`: how long another holder is waited for, of which `waits` is told once.
    Raises AdmissionError: code `held`: another has it, and keeps it.
    """

    async def beat() -> float:
        pulse.news.clear()
        granted = await client.hold(holder, pulse.expected_s(), pulse.measuring())
        headers[LEASE_HEADER] = granted.token
        if granted.ends:
            pulse.ends()
        return granted.ttl_s / BEATS

    async def keep(pause_s: float) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(pulse.news.wait(), pause_s)
            try:
                pause_s = await beat()
            except SparkdashError as error:
                if error.code == "lease_lost":  # the daemon was started anew
                    with suppress(SparkdashError):
                        await client.let_go()
                pulse.news.clear()
                pause_s = 1.0

    heart = asyncio.create_task(keep(await _granted(beat, patience_s, waits)), name="bench lease")
    try:
        yield
    finally:
        headers.pop(LEASE_HEADER, None)
        heart.cancel()
        await asyncio.gather(heart, return_exceptions=True)
        with suppress(SparkdashError):
            await client.let_go()


async def _granted(beat: Callable[[], Awaitable[float]], patience_s: float, waits: Callable[[str], None]) -> float:
    """Take the lease for the first time; a killed holder's lease lapses meanwhile."""
    until = asyncio.get_running_loop().time() + patience_s
    told = False
    while True:
        try:
            return await beat()
        except SparkdashError as error:
            if error.code != "held":
                raise
            if not told:
                waits(error.message)
                told = True
            if asyncio.get_running_loop().time() > until:
                raise
        await asyncio.sleep(1.0)
