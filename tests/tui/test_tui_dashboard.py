"""The dashboard as text: a box at work, a swap, a failure, nothing, and no daemon."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import EngineChanged, GuardChanged, Level, Notice, RequestChanged, SwapChanged
from sparkdash.domain.memory import Floors, Guard, GuardLevel
from sparkdash.domain.metric import GatewayFigures, Metric
from sparkdash.domain.request import RequestState
from sparkdash.domain.swap import SwapOutcome, SwapPhase
from sparkdash.errors import DaemonError

FIRST: dict[str, Any] = {
    "fraction": None, "eta_s": None, "eta_low_s": None, "eta_high_s": None, "eta_at": None, "learned_from": 0,
    "expected_s": None, "progress": None, "waiting": 0,
}  # fmt: skip
"""Nothing is known of a swap that was never seen before."""
PAGES = "1 Dash 2 Profiles 3 Requests 4 A/B 5 Logs 6 History"


async def test_a_box_at_work_fits_80x24(stage: Any, box: Any) -> None:
    """Every panel is there, nothing is cut, and the figures are the sample's."""
    async with stage(box.snapshot()) as on:
        assert [len(line) for line in on.lines] == [80] * 24
        assert on.rows[0] == "sparkdash spark-1 gpt-oss-120b ● ready 2h14m 57.9 tok/s 3 in flight 13:47"
        assert on.lines[1].startswith("╭ gpt-oss-120b ── vLLM 0.19.0 · 128K ─")
        assert on.lines[1].endswith("─ best 59.1 each ─╮")
        assert "┗━┓  ┃ ┗━┫" in on.lines[3], "57.9 in large figures"
        assert "each 28.9 n=2" in on.lines[6]
        assert "prompt     2140 tok/s" in on.lines[7]
        assert "ttft 0.41 s  p95 1.90 s" in on.lines[7]
        assert "1 ━━━━━━━━── 0.81  2 ━━━━━━──── 0.62  2.43 per step" in on.lines[8]
        assert "76 %" in on.lines[9]
        assert "209.9k of 512k  room for 2 x 128K" in on.lines[10]
        assert "available 37.4 GiB of 121.7 GiB" in on.below_card[0]
        assert "█ gpt-oss-120b 78.2  ▓ other 6.1  ▒ cache 21.0  ░ free 16.4  ┊ reserve 10.0" in on.below_card[2]
        assert on.below_card[4].startswith(" gpu  96 %  2.41 GHz  71 °C   62 W     pressure 0.0 %     swap 0")
        assert on.rows[18] == "codex gpt-oss-120b 4.0s 18204 98 % 312 57.1 ▶ decodes ▐"
        assert PAGES in on.lines[23]
        assert "…" not in "".join(line for line in on.lines if "qwen3-…nvfp4" not in line)


async def test_first_token_times_of_two_digits_fit_beside_each_other(stage: Any, box: Any) -> None:
    sample = box.sample()
    (name, found), *_ = sample.engines.items()
    slow = found.replace(gateway=GatewayFigures(ttft_p50_s=17.17, ttft_p95_s=138.52))
    read = found.replace(values={**found.values, Metric.TTFT_P50: 17.17, Metric.TTFT_P95: 138.52}, gateway=None)
    async with stage(box.snapshot(sample=sample.replace(engines={name: slow}))) as on:
        assert "ttft 17.2 s  p95 139 s " in on.lines[7]
    async with stage(box.snapshot(sample=sample.replace(engines={name: read}))) as on:
        assert "ttft ~17.2 s  p95 ~139 s " in on.lines[7]


async def test_a_wide_terminal_shows_requests_and_log_beside_the_dashboard(stage: Any, box: Any, daemon: Any) -> None:
    """At 200x60 the comparison, the swaps and the log need no other page."""
    daemon.log[box.gpt] = ["first line of the log", "last line of the log"]
    async with stage(box.snapshot(), size=(200, 60)) as on:
        for heading in ("╭ requests ", "╭ log gpt-oss-120b ", "╭ A | B ", "╭ swaps ", "╭ unified memory "):
            assert heading in on.text
        assert "last line of the log" in on.text


async def test_a_narrow_terminal_drops_columns_not_figures(stage: Any, box: Any) -> None:
    """At 60 columns the rate and the state are still there."""
    async with stage(box.snapshot(), size=(60, 24)) as on:
        assert "codex gpt-oss-120b 312 57.1 ▶ decodes ▐" in on.rows


async def test_the_card_becomes_the_swap(stage: Any, box: Any) -> None:
    """Seven phases with the present one lit, time, estimate, the log's last line, who waits and how to cancel."""
    async with stage(box.swapping()) as on:
        assert "load → qwen3-coder-30b-nvfp4" in on.lines[0]
        assert "swap to qwen3-coder-30b-nvfp4 after gpt-oss-120b" in on.lines[1]
        assert "✓ drain  ✓ stop  ✓ reclaim  ✓ preflight  ✓ create  ▶ load  · warm" in on.lines[2]
        assert " 33 %  weights 63 %" in on.text
        assert "elapsed 1m12s   about 2m28s left (2m06s to 2m46s)   usually 3m40s   n 4" in on.text
        assert "log Loading safetensors checkpoint shards: 63% 5/8" in on.text
        assert "1 waits: aider 1m02s" in on.text
        assert "x cancels" in on.text
        assert "waits ~2m28s" in on.text


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


async def test_a_first_swap_has_no_estimate(stage: Any, box: Any) -> None:
    async with stage(box.swapping(swap=box.swap(**FIRST), requests={})) as on:
        assert "no estimate yet" in on.text
        assert "first load here: no estimate" in on.text
        assert "nobody waits" in on.text


async def test_a_swap_that_takes_longer_than_it_ever_did_says_so(stage: Any, box: Any) -> None:
    late = box.swap(fraction=0.95, eta_s=10.0, eta_low_s=8.0, eta_high_s=12.0, eta_at=box.now - 30)
    async with stage(box.swapping(swap=late)) as on:
        assert "95 %" in on.text
        assert "longer than usual" in on.text


async def test_a_load_that_stands_still_says_so(stage: Any, box: Any) -> None:
    async with stage(
        box.swapping(swap=box.swap(still_since=box.now - 130, gives_up_at=box.now + 1070, heard_at=box.now - 131))
    ) as on:
        assert "stalled: no progress for 2m10s, ended in 17m50s" in on.text
        assert "log, 2m11s ago" in on.text
        assert "left" not in on.text
        assert "K extends  x cancels" in on.text
        await on.press("K")
        assert on.daemon.asked == [("extend_load", box.coder)]
        assert f"{box.coder} may go on standing still; x cancels it." in on.text


async def test_a_load_that_moves_is_not_extended(stage: Any, box: Any) -> None:
    async with stage(box.swapping()) as on:
        assert "K extends" not in on.text
        await on.press("K")
        assert on.daemon.asked == []
        assert "No load stands still." in on.text


async def test_what_a_swap_waits_for_is_told_in_the_place_of_the_log(stage: Any, box: Any) -> None:
    """With the time until the wait is over: it is the daemon's to cut requests and to kill an engine."""
    drains = box.swap(phase=SwapPhase.DRAIN, progress=None, waits_for="2 requests of qwen", until=box.now + 100)
    async with stage(box.swapping(swap=drains)) as on:
        assert "waits for 2 requests of qwen, cut in 1m40s" in on.text


async def test_where_the_estimate_is_from_is_told(stage: Any, box: Any) -> None:
    """One earlier load has no spread; another launch of the same model is named as that."""
    once = box.swap(eta_low_s=None, eta_high_s=None, learned_from=1, similar=True, expected_s=None)
    async with stage(box.swapping(swap=once)) as on:
        assert "about 2m28s left   from 1 load of the same model" in on.text


async def test_a_swap_moves_on_before_ones_eyes(stage: Any, box: Any) -> None:
    """Facts over the feed become the next phase, and then the new engine."""
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


async def test_a_failed_engine_shows_message_hint_and_last_words(stage: Any, box: Any) -> None:
    failed = box.engine(box.coder, EngineState.FAILED, failure=box.failure, ready_at=None, load_s=None)
    async with stage(box.snapshot(engines={box.coder: failed}, requests={})) as on:
        assert "qwen3-coder-30b-nvfp4 ✗ failed" in on.lines[0]
        for words in (
            "out_of_memory (exit 1)", "→ Lower gpu-memory-utilization", "ERROR engine core died", "/state/incidents/1",
        ):  # fmt: skip
            assert words in on.text


async def test_a_failed_swap_is_told_while_the_one_before_runs(stage: Any, box: Any) -> None:
    failed = box.ended("s9", SwapOutcome.FAILED, ended_at=box.now - 20, failure=box.failure)
    async with stage(box.snapshot(swaps=(failed,))) as on:
        assert on.lines[22].startswith(" ✗ qwen3-coder-30b-nvfp4 failed, out_of_memory:")
        assert "gpt-oss-120b ● ready" in on.lines[0]


async def test_a_warning_stays_on_the_notice_row_for_a_while(stage: Any, box: Any) -> None:
    async with stage(box.snapshot()) as on:
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


async def test_a_gpu_stuck_in_its_low_power_state_says_what_to_do(stage: Any, box: Any) -> None:
    sample = box.snapshot().sample.model_copy(update={"low_power": True})
    async with stage(box.snapshot(sample=sample), size=(120, 40)) as on:
        assert "62 W  ✗ stuck low-power: unplug AC 60 s" in on.text


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


async def test_nothing_running_says_what_to_do(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(engines={}, requests={}, recent=(), sample=None, swaps=())) as on:
        assert "nothing runs" in on.lines[0]
        assert "p  profiles, each with the memory that it needs" in on.text
        assert "No request yet." in on.text
        assert on.below_card[0].startswith("╭ unified memory")
        assert " ".join(on.below_card[4].split()) == "gpu - - - - pressure - swap -"


async def test_no_profiles_says_where_they_go_and_what_was_wrong(stage: Any, box: Any) -> None:
    problem = "my.yaml:7: unknown key 'imge'; did you mean 'image'?"
    async with stage(box.snapshot(profiles=(), engines={}, problems=(problem,))) as on:
        assert "~/.config/sparkdash/profiles" in on.text
        assert problem in on.text


async def test_simulated_figures_say_so_in_the_title_and_on_the_card(stage: Any, box: Any) -> None:
    world = box.snapshot()
    async with stage(world.model_copy(update={"daemon": world.daemon.model_copy(update={"simulated": True})})) as on:
        assert "SIMULATED" in on.lines[0]
        assert "SIMULATED" in on.lines[1]


async def test_a_simulated_engine_on_a_real_box_is_marked_on_its_card(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(engines={box.gpt: box.engine(simulated=True)})) as on:
        assert "SIMULATED" in on.lines[1]


async def test_simulated_is_never_crowded_out(stage: Any, box: Any) -> None:
    long = box.engine(box.eagle, simulated=True, version="0.19.0.dev12+nv26.04")
    figures = {box.eagle: box.snapshot().figures[box.gpt]}
    async with stage(box.snapshot(engines={box.eagle: long}, figures=figures)) as on:
        assert "SIMULATED" in on.lines[1]
        assert "qwen3-coder-30b-nvfp4/eagle3" in on.lines[1]
        assert len(on.lines[1]) == 80


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


async def test_old_figures_tell_their_age(stage: Any, box: Any) -> None:
    """The engine has been silent for 20 s."""
    async with stage(box.snapshot()) as on:
        await on.later(20)
        assert "20s old" in on.lines[1]
        assert "20s old" in on.below_card[0]
        assert "┗━┓  ┃ ┗━┫" in on.lines[3]


async def test_a_lost_link_is_shown_and_restored(stage: Any, box: Any) -> None:
    """The header tells since when; the next item brings it back."""
    async with stage(box.snapshot()) as on:
        await on.tell(box.lost)
        await on.later(12)
        assert "✗ link lost 12s, retrying  13:47" in on.lines[0]
        await on.tell(box.snapshot(seq=200))
        assert "3 in flight" in on.lines[0]


async def test_no_daemon_says_how_to_start_one(stage: Any) -> None:
    async with stage(None) as on:
        assert "Looking for the daemon at http://spark-1:8484" in on.text
        await on.later(5)
        assert "sparkdash serve" in on.text


async def test_a_daemon_of_another_version_is_told(stage: Any) -> None:
    async with stage(None) as on:
        await on.tell(DaemonError("The daemon is of another version.", code="daemon_version", hint="Restart it."))
        assert "✗ no link" in on.lines[0]
        assert "→ Restart it." in on.text
        assert "a daemon of another version" in on.text
        assert "no daemon yet" not in on.text


async def test_a_lost_event_makes_the_feed_begin_anew(stage: Any, box: Any) -> None:
    async with stage(box.snapshot()) as on:
        on.daemon.seq = 140
        await on.happen(box.tick(box.now), EngineChanged(engine=box.engine(state=EngineState.DRAINING)))
        on.daemon.seq = 300
        await on.happen(RequestChanged(request=box.request("r7")))
        await on.tell(box.snapshot(seq=400, requests={}))
        assert "0 in flight" in on.lines[0]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_a_swap_leaves_the_panels_where_they_are(stage: Any, box: Any, size: tuple[int, int]) -> None:
    async with stage(box.snapshot(), size=size) as on:
        before = [line.startswith("╭ unified memory") for line in on.lines]
        await on.tell(box.swapping(seq=200))
        assert "▶ load" in on.text
        assert [line.startswith("╭ unified memory") for line in on.lines] == before


async def test_engines_beside_the_first_have_a_row_each(stage: Any, box: Any) -> None:
    beside = box.engine(box.coder, ready_at=box.now - 9000, since=box.now - 9000)
    async with stage(box.snapshot(engines={box.gpt: box.engine(), box.coder: beside})) as on:
        assert on.below_card[0].startswith(" qwen3-coder-30b-nvfp4  ● ready 2h30m")
        assert PAGES in on.lines[23]


async def test_unknown_figures_are_dashes(stage: Any, box: Any) -> None:
    quiet = box.sample().model_copy(update={"engines": {}, "gpu": None})
    async with stage(box.snapshot(sample=quiet, figures={})) as on:
        assert on.lines[3].startswith("│ ╺━╸  ")
        assert on.lines[7].startswith("│ prompt        -       ")
        assert "tok/s" not in on.lines[7]
        assert "no speculation" in on.lines[8]


async def test_a_request_that_failed_shows_its_code(stage: Any, box: Any) -> None:
    gone = box.request("r8", RequestState.GONE, finished_at=box.now)
    async with stage(box.snapshot(), size=(80, 30)) as on:
        await on.happen(RequestChanged(request=gone))
        assert "✗ engine_crash" in on.text
        assert "⊘ left" in on.text
