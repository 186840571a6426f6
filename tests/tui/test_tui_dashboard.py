"""The dashboard as text: a box at work, a swap, a failure, an engine that is stuck, nothing, and no daemon."""

import asyncio
import gc
from dataclasses import replace
from typing import Any

import pytest

from sparkdash.domain.engine import EngineState, Liveness, LivenessState, Repairs, RepairStep, RepairTime
from sparkdash.domain.event import EngineChanged, GuardChanged, Level, Measuring, Notice, RequestChanged, SwapChanged
from sparkdash.domain.memory import Floors, Guard, GuardLevel
from sparkdash.domain.metric import GatewayFigures, LiveRequest, Metric
from sparkdash.domain.phrases import figures_of_request
from sparkdash.domain.request import RequestState
from sparkdash.domain.swap import SwapOutcome


async def test_first_token_times_of_two_digits_fit_beside_each_other(stage: Any, box: Any) -> None:
    sample = box.sample()
    (name, found), *_ = sample.engines.items()
    slow = found.replace(gateway=GatewayFigures(ttft_p50_s=17.17, ttft_p95_s=138.52))
    read = found.replace(values={**found.values, Metric.TTFT_P50: 17.17, Metric.TTFT_P95: 138.52}, gateway=None)
    async with stage(box.snapshot(sample=sample.replace(engines={name: slow}))) as on:
        assert "ttft 17.2 s  p95 139 s " in on.lines[7]
    async with stage(box.snapshot(sample=sample.replace(engines={name: read}))) as on:
        assert "ttft ~17.2 s  p95 ~139 s " in on.lines[7]


async def test_a_swap_beside_another_is_told_and_given_up_with_it(stage: Any, box: Any) -> None:
    """The oldest has the card; the others are named, who waits for one of them sees its time, and the question names all."""
    beside = box.swap(id="s2", target="gemma", evict=(), eta_s=30.0, eta_low_s=None, eta_high_s=None)
    waits = box.request("r9", RequestState.WAITING, profile="gemma", granted_at=None, started_at=box.now - 5)
    async with stage(box.swapping(swaps_beside=(beside,), requests={"r9": waits})) as on:
        assert "load → qwen3-coder-30b-nvfp4 +1" in on.lines[0]
        assert "swap to qwen3-coder-30b-nvfp4 after gpt-oss-120b, and gemma" in on.lines[1]
        assert "waits ~" in on.text
        await on.press("x")
        assert "cancel 2 swaps?" in on.text
        assert "the start of qwen3-coder-30b-nvfp4, the start of gemma" in on.text


FIRST = {"eta_s": None, "eta_low_s": None, "eta_high_s": None, "eta_at": None, "learned_from": 0}
ONCE = {"eta_low_s": None, "eta_high_s": None, "learned_from": 1, "similar": True, "expected_s": None}


@pytest.mark.parametrize(("known", "words"), [
    (FIRST, "first load here: no estimate"),
    (FIRST | {"reads_s": 64.0}, "first load here, 1m04s or more to read its"),
    (ONCE, "about 2m28s left   from 1 load of the same model"),
], ids=["nothing", "the disk", "the same model"])  # fmt: skip
async def test_an_estimate_tells_what_it_is_from(stage: Any, box: Any, known: dict[str, Any], words: str) -> None:
    async with stage(box.swapping(swap=box.swap(**known))) as on:
        assert words in on.text


async def test_only_a_load_that_stands_still_is_extended(stage: Any, box: Any) -> None:
    still = box.swap(still_since=box.now - 130, gives_up_at=box.now + 1070, heard_at=box.now - 131)
    async with stage(box.swapping()) as on:
        assert "K extends" not in on.text
        await on.press("K")
        assert on.daemon.asked == []
        assert "No load stands still." in on.text
        await on.happen(SwapChanged(swap=still))
        assert "stalled: no progress for 2m10s, stops in 17m50s" in on.text
        assert "log, 2m11s ago" in on.text
        assert "left" not in on.text
        assert "K extends  x cancels" in on.text
        await on.press("K")
        assert on.daemon.asked == [("extend_load", box.coder)]
        assert f"{box.coder} may go on standing still; x cancels it." in on.text


async def test_a_swap_moves_on_before_ones_eyes(stage: Any, box: Any) -> None:
    async with stage(box.swapping()) as on:
        await on.happen(SwapChanged(swap=box.swap(phase="warm", progress=None)))
        assert "▶ warm" in on.lines[2]
        ready = box.engine(box.coder, since=box.now, ready_at=box.now, load_s=95.0)
        await on.happen(
            EngineChanged(engine=ready),
            SwapChanged(swap=box.swap(phase="warm", ended_at=box.now, outcome=SwapOutcome.DONE)),
        )
        assert "qwen3-coder-30b-nvfp4 ● ready 0s" in on.lines[0]
        assert "loaded in 1m35s" in on.card_foot


async def test_a_warning_stays_on_the_notice_row_for_a_while(on: Any) -> None:
    await on.happen(Notice(level=Level.WARNING, code="foreign", text="A foreign container holds port 18002."))
    assert on.lines[22].startswith(" ⚠ A foreign container holds port 18002.")
    assert on.lines[22].rstrip().endswith("n what to do")
    (row,) = on.app.screen.query("NoticeRow")
    assert row._lines[0][1].style == "warn"
    await on.later(300)
    assert row._lines[0][1].style == "dim", "it fades when it is old"
    await on.later(400)
    assert "foreign" not in on.lines[22]
    assert "h history" in on.lines[22], "the keys that the footer has no room for"


async def test_a_notice_leaves_its_row_when_its_cause_is_gone(stage: Any, box: Any) -> None:
    low = Notice(level=Level.ERROR, code="low_power", text="The GPU is stuck in its low-power state.")
    over = Notice(level=Level.INFO, code="low_power_over", text="The GPU has left it.")
    gone = Notice(level=Level.ERROR, code="engine_unreachable", text="It no longer answers.", profile=box.coder)
    async with stage(box.snapshot(), size=(120, 40)) as on:
        await on.happen(gone, at=box.now)
        await on.happen(low, at=box.now + 1)
        assert "✗ The GPU is stuck" in on.text
        await on.happen(over, at=box.now + 2)
        assert "✗ It no longer answers." in on.text
        await on.happen(EngineChanged(engine=box.engine(box.coder, ready_at=box.now + 3)), at=box.now + 3)
        assert "no longer answers" not in on.text
        await on.happen(low, at=box.now + 4)
        assert "✗ The GPU is stuck" in on.text, "it is stuck anew"


async def test_what_runs_is_whole_in_a_narrow_title(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(60, 20)) as on:
        assert on.lines[0].split("  ") == [" spark-1", "gpt-oss-120b ● ready 2h14m", "", " 3 in flight", "13:47 "]
        await on.pilot.resize_terminal(52, 20)
        await on.settle()
        assert on.lines[0].startswith(" gpt-oss-120b ● ready 2h14m ")


async def test_an_answer_gives_way_to_the_error_that_follows_it(stage: Any, box: Any) -> None:
    """ "is coming up" does not stand over a failure; a later answer stands over an older error."""
    async with stage(box.snapshot(engines={})) as on:
        await on.press("2", "j", "s", "enter")
        assert "is starting." in on.lines[22]
        await on.later(0.5)
        await on.happen(
            Notice(level=Level.ERROR, code="image_missing", text="Its image is not here."), at=box.now + 0.1
        )
        assert on.lines[22].startswith(" ✗ Its image is not here.")
        await on.press("y")
        assert "Copied: qwen3-coder-30b-nvfp4" in on.lines[22]


async def test_problems_of_profile_files_can_all_be_read(stage: Any, box: Any) -> None:
    """The row says what is wrong, without the folder that would fill it; n has every one whole."""
    folder = "/home/somebody/.config/sparkdash/profiles/of-the-spark-in-the-cellar"
    problems = tuple(f"{folder}/p{n}.yaml:3: imge: unknown key. Did you mean 'image'?" for n in range(4))
    async with stage(box.snapshot(problems=problems)) as on:
        assert "4 problems in profile files: p0.yaml:3: imge: unknown" in on.lines[22]
        await on.press("6", "v")
        assert "n all" in on.text
        await on.press("n")
        told = " ".join("".join(on.rows).split())
        assert "p3.yaml:3:" in told
        assert "Did you mean 'image'?" in told


async def test_the_memory_bar_says_what_the_guard_does(stage: Any, box: Any) -> None:
    guard = Guard(mode="act", floors=Floors(warn=12 << 30, hold=8 << 30, kill=5 << 30))
    async with stage(box.snapshot(guard=guard)) as on:
        assert "guard" not in on.below_card[0]
        await on.happen(GuardChanged(guard=guard.model_copy(update={"level": GuardLevel.HOLD})))
        assert on.below_card[0].startswith("╭ memory ── ⚠ guard holds loads back ─")
        assert "─ available 37.4 GiB of 121.7 GiB ─╮" in on.below_card[0]
        await on.happen(GuardChanged(guard=Guard(mode="off")))
        assert on.below_card[0].startswith("╭ unified memory ── guard off ─")


@pytest.mark.parametrize(("width", "profile"), [
    (104, "qwen3-coder-30b-nvfp4/eagle3"), (120, "qwen3-coder-30b-nvfp4/turbo-dual-eagle3"),
])  # fmt: skip
async def test_no_profiles_name_is_cut_for_a_clients(stage: Any, box: Any, width: int, profile: str) -> None:
    """The client's is whole where there is room for the longest of the shipped ones."""
    asks = box.request("r7", client="sparkdash-bench", profile=profile)
    async with stage(box.snapshot(requests={"r7": asks}), size=(width, 40)) as on:
        (row,) = (line for line in on.lines if "bench" in line)
        assert f" {profile} " in row
        assert ("sparkdash-bench" in row) is (width == 120)


async def test_without_profiles_the_card_says_what_was_wrong(stage: Any, box: Any) -> None:
    problem = "my.yaml:7: unknown key 'imge'; did you mean 'image'?"
    async with stage(box.snapshot(profiles=(), engines={}, problems=(problem,))) as on:
        assert problem in on.text


async def test_simulated_is_never_crowded_out(stage: Any, box: Any) -> None:
    long = box.engine(box.eagle, simulated=True, version="0.19.0.dev12+nv26.04")
    figures = {box.eagle: box.snapshot().figures[box.gpt]}
    async with stage(box.snapshot(engines={box.eagle: long}, figures=figures)) as on:
        assert "SIMULATED" in on.lines[1]
        assert "qwen3-coder-30b-nvfp4/eagle3" in on.lines[1]
        assert len(on.lines[1]) == 80


@pytest.mark.parametrize("size", [(60, 15), (80, 24)])
async def test_the_title_says_simulated_while_a_run_measures(stage: Any, box: Any, size: tuple[int, int]) -> None:
    """The other pages have no frame that would say it."""
    now = Measuring(
        run="r", doing="measuring", arm="a", cell="c", launch=1, launches=2, done=1, cells=9, share=0.1, at=box.now
    )
    daemon = box.snapshot().daemon.replace(simulated=True, host="a-box-with-a-name")
    engines = {box.eagle: box.engine(box.eagle)}
    async with stage(box.snapshot(daemon=daemon, engines=engines, measuring=now), size=size) as on:
        assert on.lines[0].startswith(" SIM")
        assert "measuring 10 %" in on.lines[0]
        assert "● ready 2h14m" in on.lines[0]


async def test_a_silent_engines_rate_is_in_no_sum_and_its_row_tells_the_age(stage: Any, box: Any) -> None:
    """Frozen for 45 s beside one that decodes: the title has the other's rate alone."""
    sample = box.sample()
    frozen = sample.engines[box.gpt].replace(at=box.now - 45)
    both = {box.gpt: sample.engines[box.gpt], "qwen3-coder-30b-nvfp4": frozen.replace(values={Metric.DECODE: 197.9})}
    engines = {name: box.engine(name) for name in both}
    async with stage(box.snapshot(engines=engines, sample=sample.replace(engines=both)), size=(120, 40)) as on:
        assert "57.9 tok/s  " in on.lines[0]
        (row,) = (line for line in on.lines if "197.9 tok/s" in line)
        assert "45s old" in row


async def test_a_lost_event_and_a_lost_link_make_the_feed_begin_anew(on: Any, box: Any) -> None:
    on.daemon.seq = 140
    await on.happen(box.tick(box.now), EngineChanged(engine=box.engine(state=EngineState.DRAINING)))
    on.daemon.seq = 300
    await on.happen(RequestChanged(request=box.request("r7")))
    await on.tell(box.snapshot(seq=400, requests={}))
    assert "0 in flight" in on.lines[0]
    await on.tell(box.lost)
    await on.later(12)
    assert "✗ link lost 12s, retrying  13:47" in on.lines[0]
    await on.tell(box.snapshot(seq=500))
    assert "3 in flight" in on.lines[0]


async def test_an_end_while_the_past_is_asked_for_leaves_nothing_behind(
    stage: Any, box: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose end nobody took is told on stderr, in the terminal that was just given back."""
    left: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, told: left.append(told))
    asked = asyncio.Event()

    async def silent() -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("sparkdash.tui.app.RECALLED_S", 0.01)
    monkeypatch.setattr(daemon, "recorded_past", silent)
    async with stage(box.snapshot()) as on:
        await asked.wait()
        await on.daemon.items.join()
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert left == []


WHY = "2 running, 0 waiting, no token for 2m05s, GPU 14 W at 96 %"


def stuck(box: Any, state: LivenessState = LivenessState.STUCK, step: RepairStep | None = RepairStep.CANCEL) -> Any:
    """A box whose engine stands still, with one request that waits for it."""
    live = Liveness(
        state=state, why=WHY, since=box.now - 165, step=step, step_since=box.now - 40 if step is not None else None
    )
    requests = {"r1": box.request("r1", RequestState.WAITING, granted_at=None, position=1)}
    repairs = Repairs(by_profile={box.gpt: RepairTime(n=2, mean_s=252.0)})
    engines = {box.gpt: box.engine(box.gpt, liveness=live)}
    return box.snapshot(engines=engines, requests=requests, repairs=repairs)


@pytest.mark.parametrize(("keys", "told"), [
    ((), "2 repairs, 4m12s on average"), (("2",), "✗ stuck"),
    (("3", "enter"), "engine stuck: requests cancelled, looking again 40s"),
], ids=["card", "profiles", "request"])  # fmt: skip
async def test_each_page_says_what_it_knows_of_a_stuck_engine(
    stage: Any, box: Any, keys: tuple[str, ...], told: str
) -> None:
    async with stage(stuck(box)) as on:
        await on.press(*keys)
        assert told in " ".join(on.rows)


async def test_a_request_that_others_hold_off_says_who_and_until_when(stage: Any, box: Any) -> None:
    held = {"held_by": box.gpt, "held_until": box.now + 91}
    waits = box.request("r1", RequestState.WAITING, profile="other", granted_at=None, position=1, **held)
    async with stage(box.snapshot(requests={"r1": waits})) as on:
        await on.press("3")
        assert "waits <1m31s" in on.text
        await on.press("enter")
        assert f"{box.gpt} is in use, 1m31s at most" in on.text


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


async def test_a_request_that_ends_while_its_dialog_is_open_says_so_there(stage: Any, box: Any) -> None:
    live = running(box)
    async with stage(box.snapshot(requests={"live": live})) as on:
        await on.press("3", "enter")
        assert any("state ▶ decodes" in row for row in on.rows)
        ended = running(box, RequestState.DONE, finished_at=box.now, status=200, finish_reason="stop")
        await on.happen(RequestChanged(request=ended))
        assert any("ended status 200, stop" in row for row in on.rows)
        assert not any("state ▶ decodes" in row for row in on.rows)


async def test_many_open_requests_stand_by_client(stage: Any, box: Any) -> None:
    names = ["zed", "aider"] * 6
    requests = {f"r{n}": box.request(f"r{n}", client=name, started_at=box.now - n) for n, name in enumerate(names)}
    async with stage(box.snapshot(requests=requests), size=(120, 40)) as on:
        await on.press("3")
        shown = [row.split()[0] for row in on.rows if row.startswith(("zed", "aider"))]
        assert shown[:12] == ["aider"] * 6 + ["zed"] * 6


def test_an_ended_request_has_the_engines_counts_alone(box: Any) -> None:
    live = LiveRequest(profile=box.gpt, output_tokens=300, tok_s=50.0)
    ended = running(box, RequestState.DONE, finished_at=box.now, completion_tokens=None)
    figures = figures_of_request(ended, box.sample().replace(requests={"live": live}))
    assert (figures.output, figures.prompt, figures.tok_s) == (None, None, None)


async def test_what_had_come_of_a_cut_answer_stays_as_an_estimate(stage: Any, box: Any) -> None:
    """An IDE that leaves in the middle hides no work; what the engine counted counts alone."""
    cut = running(box, RequestState.GONE, finished_at=box.now, completion_estimate=412, error="client_gone")
    assert figures_of_request(cut, box.sample())[2:4] == (412, True)
    assert figures_of_request(replace(cut, completion_tokens=400), box.sample())[2:4] == (400, False)
    async with stage(box.snapshot().model_copy(update={"requests": {cut.id: cut}}), size=(160, 45)) as on:
        await on.press("3")
        assert "~412" in on.text
