"""An engine that is stuck, on every page: since when, what was seen, and what is done about it."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.engine import Liveness, LivenessState, Repairs, RepairStep, RepairTime
from sparkdash.domain.request import RequestState

WHY = "2 running, 0 waiting, no token for 2m05s, GPU 14 W at 96 %"


def stuck(box: Any, state: LivenessState = LivenessState.STUCK, step: RepairStep | None = RepairStep.CANCEL) -> Any:
    """A box whose engine stands still, with one request that waits for it and one whose answer had begun."""
    live = Liveness(
        state=state, why=WHY, since=box.now - 165, step=step, step_since=box.now - 40 if step is not None else None
    )
    requests = {
        "r1": box.request("r1", RequestState.WAITING, granted_at=None, position=1),
        "r2": box.request("r2", RequestState.STREAMING),
    }
    repairs = Repairs(by_profile={box.gpt: RepairTime(n=2, mean_s=252.0)})
    engines = {box.gpt: box.engine(box.gpt, liveness=live)}
    return box.snapshot(engines=engines, requests=requests, repairs=repairs)


@pytest.mark.parametrize("size", [(60, 24), (80, 24), (120, 40)])
async def test_the_card_says_since_when_and_what_is_done(stage: Any, box: Any, size: tuple[int, int]) -> None:
    async with stage(stuck(box), size=size) as on:
        assert "gpt-oss-120b ✗ stuck 2m45s" in on.lines[0]
        told = " ".join(on.text.replace("│", " ").split())
        assert f"✗ stuck for 2m45s: {WHY}" in told
        assert "→ requests cancelled, looking again 40s; if that does not help" in told
        assert "2 repairs, 4m12s on average" in told or size[0] < 80


async def test_the_panels_below_keep_their_place(stage: Any, box: Any) -> None:
    async with stage(box.snapshot()) as on:
        before = next(number for number, line in enumerate(on.lines) if line.startswith("╰"))
    async with stage(stuck(box)) as on:
        assert next(number for number, line in enumerate(on.lines) if line.startswith("╰")) == before


async def test_requests_on_a_stuck_engine_say_so(stage: Any, box: Any) -> None:
    async with stage(stuck(box)) as on:
        assert sum("✗ engine stuck" in line for line in on.lines) == 2
        await on.press("3")
        assert "engine stuck: requests cancelled, looking again 40s" in on.text


async def test_the_profiles_page_says_it(stage: Any, box: Any) -> None:
    async with stage(stuck(box)) as on:
        await on.press("2")
        assert "✗ stuck" in on.text


async def test_an_engine_beside_the_one_on_the_card_says_it(stage: Any, box: Any) -> None:
    world = stuck(box)
    beside = world.engines[box.gpt].replace(profile="small", since=box.now - 90)
    async with stage(world.replace(engines={box.gpt: box.engine(), "small": beside}, requests={})) as on:
        row = next(line for line in on.lines if line.startswith(" small "))
        assert "✗ stuck 2m45s" in row
        assert "requests cancelled, looking again 40s" in row


async def test_a_silent_engine_is_only_marked(stage: Any, box: Any) -> None:
    async with stage(stuck(box, LivenessState.SILENT, None)) as on:
        assert "gpt-oss-120b ! silent 2m45s" in on.lines[0]
        assert "✗ stuck" not in on.text
        assert "✗ engine stuck" not in on.text
