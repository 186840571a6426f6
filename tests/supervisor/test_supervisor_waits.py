"""What a swap waits for is published: requests that drain, an engine that ends, memory that comes back."""

from __future__ import annotations

import asyncio
from typing import Any

from sparkdash.domain.event import SwapChanged
from sparkdash.domain.swap import SwapPhase
from sparkdash.units import GIB


def waited(house: Any, phase: SwapPhase) -> list[str]:
    """What was waited for in this phase, each once, in its order."""
    swaps = [fact.swap for fact in house.facts if isinstance(fact, SwapChanged)]
    return list(dict.fromkeys(swap.waits_for for swap in swaps if swap.phase is phase and swap.waits_for))


def until(house: Any, phase: SwapPhase) -> float:
    swaps = [fact.swap for fact in house.facts if isinstance(fact, SwapChanged)]
    return next(swap.until for swap in swaps if swap.phase is phase and swap.until is not None)


async def test_a_drain_tells_which_requests_it_waits_for_and_when_they_are_cut(house: Any, make_profile: Any) -> None:
    await house.open(make_profile("a"), drain_s=60)
    first, second = house.ask("a"), house.ask("a")
    await house.clock.drive(asyncio.gather(first.granted(), second.granted()))
    stop = asyncio.create_task(house.supervisor.stop("a"))
    await house.clock.rest()
    begun = house.clock.now()
    await first.leave()
    await second.leave()
    await house.clock.drive(stop)
    assert waited(house, SwapPhase.DRAIN) == ["2 requests of a", "1 request of a"]
    assert until(house, SwapPhase.DRAIN) == begun + 60


async def test_a_stop_tells_whom_it_waits_for_and_when_that_one_is_killed(house: Any, make_profile: Any) -> None:
    await house.open(make_profile("a"), make_profile("b", gib=20), make_profile("c", gib=20), stop_grace_s=30)
    for name in ("b", "c"):
        await house.leased(name)
    begun = house.clock.now()
    await house.clock.drive(house.supervisor.stop(None))
    assert waited(house, SwapPhase.STOP)[0] == "b and c to end"
    assert until(house, SwapPhase.STOP) == begun + 30


async def test_a_start_tells_how_much_memory_it_waits_for(house: Any, make_profile: Any) -> None:
    await house.open(make_profile("leaky", gib=95), make_profile("small", gib=20), reclaim_s=300)
    await house.leased("leaky")
    house.reader.leaks["leaky"] = int(12.4 * GIB)
    await house.leased("small")
    assert waited(house, SwapPhase.RECLAIM) == ["12.4 GiB of memory to come back"]


async def test_a_swap_that_is_over_waits_for_nothing(house: Any, make_profile: Any) -> None:
    await house.open(make_profile("a"))
    await house.leased("a")
    await house.clock.drive(house.supervisor.stop("a"))
    assert [(swap.waits_for, swap.until) for swap in house.swaps()] == [(None, None)] * 2
