"""Access of a measurement to the daemon: client, gateway connection, facts about the box, the engine to restore.

Owns: the connection. Must not know: what is measured, or how.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from sparkdash.bench.measure import box_lease
from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.bench.run import Host, Run
from sparkdash.client.address import at_url, credentials, find_daemon
from sparkdash.client.client import AsyncClient
from sparkdash.domain.state import Snapshot
from sparkdash.errors import SparkdashError, UpstreamError


async def restore_engine(client: AsyncClient, before: Snapshot) -> None:
    """Bring the engine back that served before the run, also when the run was stopped."""
    if before.active is None:
        return
    with contextlib.suppress(SparkdashError):
        now = await client.state()
        if now.active is None or now.active.profile != before.active.profile:
            await client.use(profile=before.active.profile, cause="bench")


@asynccontextmanager
async def daemon_client(*, managed: bool) -> AsyncIterator[AsyncClient | None]:
    """Yield a client of the daemon; None when the measured servers are not managed by it."""
    if not managed:
        yield None
        return
    async with AsyncClient() as client:
        yield client


@asynccontextmanager
async def announce_measurement(holder: str, pulse: box_lease.LeaseHeartbeat) -> AsyncIterator[None]:
    """Report the progress of a measurement of foreign servers to the daemon, for its screens, if a daemon answers."""
    async with AsyncExitStack() as stack:
        with contextlib.suppress(SparkdashError):
            client = await stack.enter_async_context(AsyncClient())
            await stack.enter_async_context(box_lease.hold_box(client, holder, {}, pulse, shares=True, patience_s=0.0))
        yield


async def open_wire(
    client: AsyncClient | None, world: Snapshot | None, run: Run, headers: dict[str, str]
) -> BenchClient:
    """Connect to the gateway over TCP, because there the kernel reports when bytes arrived.

    A gateway that asks for a key is reached as the command line reaches it. The key is sent nowhere else, but to a
    measured URL that SPARKDASH_URL names too.
    """
    if client is None or world is None or run.target != "gateway":
        return BenchClient("", headers | _known_key(run))
    address = client.address
    if address.uds is not None:
        root = world.daemon.url.removesuffix("/v1")
        async with BenchClient(root, headers) as wire:
            with contextlib.suppress(UpstreamError):
                await wire.get("/v1/models")
                return BenchClient(root, headers)
    headers |= credentials(address)
    return BenchClient(address.url, headers, address.uds)


def _known_key(run: Run) -> dict[str, str]:
    """Return the key's header where the measured URL is the daemon that SPARKDASH_URL names; else nothing."""
    known = find_daemon()
    asked = {at_url(arm.profile).url for arm in run.arms} if run.target == "url" else set()
    return credentials(known) if known.given and asked == {known.url} else {}


def host_facts(world: Snapshot | None) -> Host:
    """Describe the box from the daemon's snapshot; an empty Host without a daemon."""
    if world is None:
        return Host()
    gpu = world.sample.gpu if world.sample else None
    memory = world.sample.memory if world.sample else None
    return Host(
        name=world.daemon.host,
        gpu=gpu.name if gpu else None,
        driver=gpu.driver if gpu else None,
        memory_bytes=memory.total if memory else None,
    )
