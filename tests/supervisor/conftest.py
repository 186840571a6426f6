"""A house for the supervisor: engines that are real HTTP servers, a runtime and a box in memory, time in the test's hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from surroundings.clock import FakeClock
from surroundings.engines import Behaviour, serve
from surroundings.house import CountingUpstream, House, catalog, profile
from surroundings.stuck import Box

from sparkdash.catalog import Catalog
from sparkdash.domain.container import LABEL_OWNER
from sparkdash.domain.profile import Profile
from sparkdash.supervisor.repair import repair


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


@pytest.fixture
def box(house: Any, monkeypatch: pytest.MonkeyPatch) -> Box:
    """No engine is young, so that the thresholds are the plain ones."""
    monkeypatch.setattr(repair, "PROOF_S", 0.1)
    return Box(house)


@pytest.fixture
def opened(house: Any, box: Box, make_profile: Any) -> Callable[..., Any]:
    async def open_(*profiles: Profile, **more: Any) -> None:
        given = {"look": box.look, "take_evidence": box.evidence, **more}
        await house.open(*(profiles or (make_profile("a"),)), **given)

    return open_
