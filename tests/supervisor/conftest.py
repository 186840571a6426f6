"""A house for the supervisor: engines that are real HTTP servers, a runtime and a box in memory, time in the test's hand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from surroundings.box import Behaviour, hung, serve_engine
from surroundings.clock import FakeClock
from surroundings.house import CountingUpstream, House, make_profile
from surroundings.rig import Rig, with_a

from sparkdash.domain.profile import Profile
from sparkdash.host.thread import THREAD_NAME


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
        await made.end()


@pytest.fixture
def empty() -> Rig:
    """A scheduler of three managed profiles, and one that is elsewhere; nothing runs."""
    return Rig(100)


@pytest.fixture
def rig() -> Rig:
    """The same where `a` runs."""
    return with_a()


@pytest.fixture
async def elsewhere() -> AsyncIterator[Callable[..., Any]]:
    """Starts servers that are not ours; returns the profile of each, and what ends it."""
    servers: list[Any] = []

    async def start(name: str, does: Behaviour | None = None) -> tuple[Profile, Any]:
        servers.append(await serve_engine(name, 0, does=does))
        url = f"http://127.0.0.1:{servers[-1].addresses[0][1]}"
        return make_profile(name, engine="openai", image=None, models={}, gib=None, url=url), servers[-1]

    yield start
    for server in servers:
        await server.cleanup()
