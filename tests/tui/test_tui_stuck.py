"""An engine that is stuck, on every page: since when, what was seen, and what is done about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkdash.domain.engine import Liveness, LivenessState, Repairs, RepairStep, RepairTime
from sparkdash.domain.metric import EngineSample, GatewayFigures, LiveRequest
from sparkdash.domain.phrases import figures_of_request, request_phase
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


async def test_the_card_says_how_long_repairs_take(stage: Any, box: Any) -> None:
    async with stage(stuck(box)) as on:
        assert "2 repairs, 4m12s on average" in " ".join(on.text.replace("│", " ").split())


async def test_requests_on_a_stuck_engine_say_so(stage: Any, box: Any) -> None:
    async with stage(stuck(box)) as on:
        assert sum("✗ engine stuck" in line for line in on.lines) == 2
        await on.press("3", "enter")
        assert "engine stuck: requests cancelled, looking again 40s" in on.text


async def test_a_request_that_others_hold_off_says_who_and_until_when(stage: Any, box: Any) -> None:
    held = {"held_by": box.gpt, "held_until": box.now + 91}
    waits = box.request("r1", RequestState.WAITING, profile="other", granted_at=None, position=1, **held)
    async with stage(box.snapshot(requests={"r1": waits})) as on:
        await on.press("3")
        assert "waits <1m31s" in on.text
        await on.press("enter")
        assert f"{box.gpt} is in use, 1m31s at most" in on.text


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


def running(box: Any, state: RequestState = RequestState.STREAMING, **more: Any) -> Any:
    """A request 6 s after its grant, whose answer is not counted yet."""
    values = {
        "state": state, "granted_at": box.now - 6, "finished_at": None, "prompt_tokens": None, "cached_tokens": None,
        "completion_tokens": None, "reasoning_tokens": None, "decode_tok_s": None, "prompt_estimate": 4410,
    }  # fmt: skip
    return box.request("live", **(values | more))


async def test_a_running_request_shows_its_tokens_its_rate_and_its_age(stage: Any, box: Any) -> None:
    live = LiveRequest(profile=box.gpt, output_tokens=312, tok_s=57.1, silent_s=0.1)
    sample = box.sample().replace(requests={"live": live})
    async with stage(box.snapshot(sample=sample, requests={"live": running(box)})) as on:
        assert any("~4410 - ~312 ~57.1 ▶ decodes" in row for row in on.rows), on.text


async def test_many_open_requests_stand_by_client(stage: Any, box: Any) -> None:
    names = ["zed", "aider"] * 6
    requests = {f"r{n}": box.request(f"r{n}", client=name, started_at=box.now - n) for n, name in enumerate(names)}
    async with stage(box.snapshot(requests=requests), size=(120, 40)) as on:
        await on.press("3")
        shown = [row.split()[0] for row in on.rows if row.startswith(("zed", "aider"))]
        assert shown[:12] == ["aider"] * 6 + ["zed"] * 6


async def test_an_engine_that_tells_nothing_shows_what_the_gateway_counted(stage: Any, box: Any) -> None:
    counted = GatewayFigures(in_flight=64, decode_tok_s=3000.4, decode_each_tok_s=46.9, ttft_p50_s=0.2)
    sample = box.sample().replace(engines={box.gpt: EngineSample(at=box.now, gateway=counted)})
    async with stage(box.snapshot(sample=sample), size=(120, 40)) as on:
        assert "~3000 tok/s" in on.text


@pytest.mark.parametrize(
    ("state", "live", "words"),
    [
        (RequestState.PREFILL, None, "prefill 6s"),
        (RequestState.STREAMING, LiveRequest(profile="p", output_tokens=4, silent_s=0.5), "decodes 6s"),
        (RequestState.STREAMING, LiveRequest(profile="p", output_tokens=4, silent_s=40.0), "no token 40s"),
        (RequestState.WAITING, None, "waits"),
        (RequestState.GONE, None, "gone"),
    ],
)
def test_the_phase_of_a_request_in_words(box: Any, state: RequestState, live: LiveRequest | None, words: str) -> None:
    request = running(box, state, granted_at=None if state is RequestState.WAITING else box.now - 6)
    sample = box.sample().replace(at=box.now, requests={"live": live} if live else {})
    assert request_phase(request, sample, box.now) == words


def test_an_ended_request_has_the_engines_counts_alone(box: Any) -> None:
    live = LiveRequest(profile=box.gpt, output_tokens=300, tok_s=50.0)
    ended = running(box, RequestState.DONE, finished_at=box.now, completion_tokens=None)
    figures = figures_of_request(ended, box.sample().replace(requests={"live": live}))
    assert (figures.output, figures.prompt, figures.tok_s) == (None, None, None)


async def test_what_had_come_of_a_cut_answer_stays_as_an_estimate(stage: Any, box: Any) -> None:
    """An IDE that leaves in the middle hides no work; what the engine counted counts alone."""
    cut = running(
        box,
        RequestState.GONE,
        finished_at=box.now,
        completion_tokens=None,
        completion_estimate=412,
        error="client_gone",
    )
    assert figures_of_request(cut, box.sample())[2:4] == (412, True)
    assert figures_of_request(replace(cut, completion_tokens=400), box.sample())[2:4] == (400, False)
    async with stage(box.snapshot().model_copy(update={"requests": {cut.id: cut}}), size=(160, 45)) as on:
        await on.press("3")
        assert "~412" in on.text
