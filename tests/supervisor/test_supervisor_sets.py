"""Sets: profiles that run side by side, planned and switched together."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.engine import EngineState
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError
from sparkdash.settings import Policy
from sparkdash.units import GIB

SETS = {"day": ("a", "b"), "night": ("big",), "all": ("a", "b", "big"), "odd": ("a", "nobody")}


@pytest.fixture
async def opened(house: Any, make_profile: Any) -> Any:
    profiles = [make_profile("a", gib=30), make_profile("b", gib=40), make_profile("big", gib=90)]
    await house.open(*profiles, sets=SETS)
    return house


async def switched(house: Any, name: str) -> Any:
    plan = await house.supervisor.use_set(name, begin=True)
    await house.clock.drive(house.settled())
    return plan


async def test_the_members_come_and_the_others_leave(opened: Any) -> None:
    plan = await switched(opened, "night")
    assert (plan.evict, plan.needs_bytes, plan.fits) == ((), 90 * GIB, True)
    assert opened.runtime.running() == ["big"]
    plan = await switched(opened, "day")
    assert plan.evict == ("big",)
    assert sorted(opened.runtime.running()) == ["a", "b"]
    assert opened.state("a") is EngineState.READY
    assert {swap.cause for swap in opened.swaps() if swap.target in ("a", "b")} == {SwapCause.SET}


async def test_a_member_that_runs_stays(opened: Any) -> None:
    await opened.leased("a")
    plan = await switched(opened, "day")
    assert [(row.profile, row.runs) for row in plan.members] == [("a", True), ("b", False)]
    assert opened.states("a").count(EngineState.READY) == 1
    assert sorted(opened.runtime.running()) == ["a", "b"]


async def test_a_set_that_does_not_fit_is_refused_with_the_sum_and_nothing_stops(opened: Any) -> None:
    await opened.leased("a")
    with pytest.raises(AdmissionError) as refused:
        await opened.supervisor.use_set("all", begin=True)
    assert refused.value.code == "does_not_fit"
    assert "The set all needs 160.0 GiB (a 30.0 GiB, b 40.0 GiB, big 90.0 GiB)" in refused.value.message
    assert opened.runtime.running() == ["a"]
    plan = await opened.supervisor.use_set("all", begin=False)
    assert (plan.fits, plan.needs_bytes) == (False, 160 * GIB)


async def test_a_pinned_engine_stays_beside_the_set_and_counts(house: Any, make_profile: Any) -> None:
    profiles = [make_profile("a", gib=30), make_profile("big", gib=90)]
    await house.open(*profiles, sets={"night": ("big",)}, policy={"a": Policy(pinned=True)})
    await house.leased("a")
    with pytest.raises(AdmissionError) as refused:
        await house.supervisor.use_set("night", begin=True)
    assert refused.value.code == "does_not_fit"


@pytest.mark.parametrize(("name", "code"), [("week", "set_not_found"), ("odd", "model_not_found")])
async def test_what_is_unknown_is_named(opened: Any, name: str, code: str) -> None:
    with pytest.raises(AdmissionError) as refused:
        await opened.supervisor.use_set(name, begin=True)
    assert refused.value.code == code
    if code == "set_not_found":
        assert refused.value.hint == "Known sets: day, night, all, odd."


async def test_a_member_whose_need_is_unknown_keeps_the_set_from_beginning(house: Any, make_profile: Any) -> None:
    await house.open(make_profile("a", gib=30), make_profile("dark", gib=None), sets={"s": ("a", "dark")})
    with pytest.raises(AdmissionError) as refused:
        await house.supervisor.use_set("s", begin=True)
    assert refused.value.code == "set_unknown"
    assert "dark" in refused.value.message
