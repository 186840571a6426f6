"""`GET /api/memory`: the account for who may see the whole box."""

from __future__ import annotations

from typing import Any

from sparkdash.domain.memory import Holder, Holding, MemoryAccount
from sparkdash.settings import Settings

NAME = "web\x1b[2Jui"
FOUND = MemoryAccount(at=1.0, total=10, holdings=(Holding(kind=Holder.CONTAINER, name=NAME, bytes=10),))


async def test_the_account_is_told_as_it_is(engine: Any, tools: Any) -> None:
    """Names come from outside and stay what they are; JSON escapes what would steer a terminal."""

    async def memory() -> MemoryAccount:
        return FOUND

    async with tools.living_house(engine, Settings(), memory=memory) as house:
        answer = await house.client.get("/api/memory")
    assert MemoryAccount.model_validate_json(answer.content) == FOUND
    assert b"\x1b" not in answer.content


async def test_a_simulated_box_has_no_account(house: Any) -> None:
    """The demo's."""
    answer = await house.client.get("/api/memory")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_memory_account")
