"""A house for the supervisor: engines that are real HTTP servers, a runtime and a box in memory, time in the test's hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from surroundings.clock import FakeClock
from surroundings.engines import Behaviour, serve
from surroundings.house import CountingUpstream, House, catalog, profile

from sparkdash.catalog import Catalog
from sparkdash.domain.container import LABEL_OWNER
from sparkdash.domain.profile import Profile


@pytest.fixture
def make_profile() -> Callable[..., Profile]:
    return profile


@pytest.fixture
def make_catalog() -> Callable[..., Catalog]:
    return catalog


@pytest.fixture
def behaviour() -> type[Behaviour]:
    return Behaviour


@pytest.fixture
def serve_engine() -> Callable[..., Awaitable[web.AppRunner]]:
    return serve


@pytest.fixture
def foreign_owner() -> dict[str, str]:
    return {LABEL_OWNER: "someone else"}


@pytest.fixture
async def house(ports: tuple[int, int]) -> AsyncIterator[House]:
    """Everything around a supervisor; `await house.open(...)` starts one."""
    async with CountingUpstream() as upstream:
        made = House(upstream, FakeClock(), ports)
        yield made
        await made.close()
        await made.runtime.close()
