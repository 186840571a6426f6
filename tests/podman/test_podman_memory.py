"""The account of memory with real containers: ours by profile, others by name, with what they hold."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from sparkdash.domain.memory import Holder, Holding, MemoryAccount
from sparkdash.host.box import NOTHING, GpuReading
from sparkdash.host.memory.account import Sources, account_for_memory
from sparkdash.units import GIB, MIB

pytestmark = [pytest.mark.full, pytest.mark.podman]

HOLD = "x=0123456789abcdef0123456789abcdef01234567890; i=0; while [ $i -lt 23 ]; do x=$x$x; i=$((i+1)); done; echo up > {gate}; sleep 300 & wait"
"""A shell with a variable of 344 MiB."""


async def no_gpu() -> GpuReading:
    return NOTHING


async def account(ground: Any) -> MemoryAccount:
    """One look; engines are known by the runtime's labels alone."""
    return await account_for_memory(
        Sources(runtime=ground.runtime, gpu=no_gpu, owner=ground.owner, ours=frozenset({os.getpid()}))
    )


def row(found: MemoryAccount, name: str) -> Holding:
    return next(one for one in found.holdings if one.name == name)


async def test_a_container_of_300_mib_is_named_with_its_memory(container_ground: Any) -> None:
    """Ours by its profile, somebody else's by its name and image, with the command that frees it; all adds up."""
    mine, theirs = container_ground.gate("mine"), container_ground.gate("theirs")
    await container_ground.runtime.start(container_ground.spec(HOLD.format(gate=mine), name="qwen"))
    other = container_ground.spec(HOLD.format(gate=theirs), name="webui", labels={})
    await container_ground.runtime.start(other)
    try:
        for gate in (mine, theirs):
            assert gate.read_text() == "up\n"
        began = time.monotonic()
        found = await account(container_ground)
        took = time.monotonic() - began
    finally:
        await container_ground.runtime.stop(other.name, grace_s=0)
    assert sum(one.bytes for one in found.holdings) == found.total
    engine, webui = row(found, "qwen"), row(found, other.name)
    assert (engine.kind, engine.remedy) == (Holder.ENGINE, "sparkdash stop qwen")
    assert (webui.kind, webui.remedy) == (Holder.CONTAINER, f"{container_ground.runtime.name} stop {other.name}")
    assert webui.what == container_ground.image
    assert 300 * MIB < engine.bytes < 2 * GIB
    assert 300 * MIB < webui.bytes < 2 * GIB
    assert took < 5
