"""Hold: the box to oneself for the length of a run.

Owns: taking the daemon's exclusive lease, its heartbeat, taking it anew when it was lost. Must not know: what is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress

from sparkdash.client.client import AsyncClient
from sparkdash.domain.lease import LEASE_HEADER
from sparkdash.errors import SparkdashError

BEATS = 3
"""Renewals in the time after which it would lapse."""


@asynccontextmanager
async def holding(
    client: AsyncClient, holder: str, headers: MutableMapping[str, str], expected_s: Callable[[], float | None]
) -> AsyncIterator[None]:
    """Hold it inside the block; `headers` carry the token meanwhile, also after it had to be taken anew.

    Raises:
        AdmissionError: code `held`: another has it.
    """

    async def beat() -> float:
        granted = await client.hold(holder, expected_s())
        headers[LEASE_HEADER] = granted.token
        return granted.ttl_s / BEATS

    async def keep(pause_s: float) -> None:
        while True:
            await asyncio.sleep(pause_s)
            try:
                pause_s = await beat()
            except SparkdashError as error:
                if error.code == "lease_lost":  # the daemon was started anew
                    with suppress(SparkdashError):
                        await client.let_go()
                pause_s = 1.0

    heart = asyncio.create_task(keep(await beat()), name="bench lease")
    try:
        yield
    finally:
        headers.pop(LEASE_HEADER, None)
        heart.cancel()
        await asyncio.gather(heart, return_exceptions=True)
        with suppress(SparkdashError):
            await client.let_go()
