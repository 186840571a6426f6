"""Accounts of memory for many who ask: one look serves all, and none is made unasked."""

from __future__ import annotations

import asyncio

import pytest

from sparkdash.daemon.daemon import RECENT_S, SHARED_S, MemoryAccounts
from sparkdash.domain.memory import Holder, Holding, MemoryAccount
from sparkdash.errors import HostError
from sparkdash.units import GIB

THEIRS = Holding(kind=Holder.CONTAINER, name="open-webui", bytes=6 * GIB)
FOUND = MemoryAccount(at=1.0, total=9 * GIB, holdings=(THEIRS, Holding(kind=Holder.ENGINE, name="qwen", bytes=3 * GIB)))


class Looks:
    """Looks that end when the gate opens; `now` is the clock."""

    def __init__(self) -> None:
        self.count = 0
        self.now = 100.0
        self.gate = asyncio.Event()
        self.accounts = MemoryAccounts(self.look, lambda: self.now)

    async def look(self) -> MemoryAccount:
        self.count += 1
        await self.gate.wait()
        return FOUND


async def test_all_who_ask_at_once_share_one_look() -> None:
    """Also if the first of them leaves."""
    looks = Looks()
    first, second = (asyncio.create_task(looks.accounts.now()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    looks.gate.set()
    assert await second == FOUND
    assert looks.count == 1


async def test_a_look_counts_for_a_moment_only() -> None:
    looks = Looks()
    looks.gate.set()
    await looks.accounts.now()
    looks.now += SHARED_S
    await looks.accounts.now()
    assert looks.count == 1
    looks.now += SHARED_S + 0.1
    await looks.accounts.now()
    assert looks.count == 2


async def test_a_look_that_fails_is_tried_again() -> None:
    async def fail() -> MemoryAccount:
        raise HostError("No.", code="memory_unread")

    accounts = MemoryAccounts(fail, lambda: 0.0)
    for _ in range(2):
        with pytest.raises(HostError):
            await accounts.now()


async def test_large_holders_that_are_not_ours_are_named_while_the_look_is_recent() -> None:
    """At once, and without a look of their own."""
    looks = Looks()
    assert looks.accounts.foreign() == ()
    looks.gate.set()
    await looks.accounts.now()
    assert looks.accounts.foreign() == (THEIRS,)
    looks.now += RECENT_S + 0.1
    assert (looks.accounts.foreign(), looks.count) == ((), 1)
