"""A house for the supervisor: engines that are real HTTP servers, a runtime and a box in memory, time in the test's hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from surroundings.clock import FakeClock
from surroundings.engines import hung
from surroundings.house import CountingUpstream, House, make_profile
from surroundings.stuck import Box

from sparkdash.domain.container import LABEL_OWNER
from sparkdash.domain.profile import Profile
from sparkdash.host.thread import THREAD_NAME
from sparkdash.supervisor import repair


@pytest.fixture
def foreign_owner() -> dict[str, str]:
    return {LABEL_OWNER: "someone else"}


class Threads(ThreadPoolExecutor):
    """Knows what the loop's own threads do, so that the fake clock waits for them as for those of `in_thread`."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way: set[object] = set()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        done = super().submit(fn, *args, **kwargs)
        self.under_way.add(done)
        # after the loop's own callback, which a busy machine may delay: else time would pass before the loop is told
        asyncio.get_running_loop().call_soon(done.add_done_callback, self.under_way.discard)
        return done


@pytest.fixture
async def house(ports: tuple[int, int]) -> AsyncIterator[House]:
    """Everything around a supervisor; `await house.open(...)` starts one."""
    asyncio.get_running_loop().set_default_executor(threads := Threads())
    async with CountingUpstream() as upstream:
        made = House(upstream, FakeClock(), ports)
        made.clock.asking = lambda: upstream.asking - len(hung)
        made.clock.threads = lambda: (
            len(threads.under_way) + sum(each.name == THREAD_NAME for each in enumerate_threads())
        )
        yield made
        await made.close()
        await made.runtime.close()


@pytest.fixture
def box(house: Any, monkeypatch: pytest.MonkeyPatch) -> Box:
    """No engine is young, so that the thresholds are the plain ones."""
    monkeypatch.setattr(repair, "PROOF_S", 0.1)
    return Box(house)


@pytest.fixture
def opened(house: Any, box: Box) -> Callable[..., Any]:
    async def open_(*profiles: Profile, **more: Any) -> None:
        given = {"look": box.look, "take_evidence": box.evidence, **more}
        await house.open(*(profiles or (make_profile("a"),)), **given)

    return open_
