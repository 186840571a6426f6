"""Faults that people saw on the dashboard: each once, at the size where it was seen."""

import time
from typing import Any

import pytest

from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import SampleTaken
from sparkdash.domain.memory import Guard, GuardKill
from sparkdash.domain.swap import SwapOutcome
from sparkdash.tui import text
from sparkdash.tui.lines.hero import Speed, chart_rows, compared, of_roofline, speed_of
from sparkdash.tui.mirror import View
from sparkdash.tui.widgets.memory import legend_rows, memory_bar, memory_parts
from sparkdash.units import GIB

FOUR = ("gpt-oss-120b", "qwen3-coder-30b-nvfp4", "qwen3-coder-30b-nvfp4/eagle3", "embed-0.6b")


async def test_one_more_column_of_the_terminal_costs_no_column_of_the_requests(stage: Any, box: Any) -> None:
    """Neither where the second column of panels begins, nor anywhere else."""
    heads: list[set[str]] = []
    async with stage(box.snapshot(), size=(60, 40)) as on:
        for width in (60, 80, 100, 120, 140, 159, 160, 179, 180, 200, 300):
            await on.pilot.resize_terminal(width, 40)
            await on.settle()
            heads.append(set(next(line for line in on.lines if "client  " in line and "tok/s  state" in line).split()))
    needed = {"prompt", "cached", "out", "tok/s", "took", "state"}
    assert all(needed <= head for head in heads[1:])
    assert {"at", "think", "wait", "ttft"} <= heads[5] & heads[6]


async def test_every_engine_has_a_row_and_the_card_stays_while_another_loads(stage: Any, box: Any) -> None:
    """Four engines serve and a fifth loads: the large figure is the same as before, and nobody vanishes."""
    serving = {name: box.engine(name) for name in FOUR}
    all_five = serving | {"qwen3.5-122b": box.engine("qwen3.5-122b", EngineState.LOADING, ready_at=None, load_s=None)}
    async with stage(box.snapshot(engines=serving), size=(120, 40)) as on:
        title = on.lines[1]
        await on.tell(box.snapshot(seq=200, engines=all_five, swap=box.swap(target="qwen3.5-122b", evict=())))
        assert on.lines[1] == title
        assert [name for name in all_five if name not in on.text] == []
        assert "◌ load 1m12s" in on.text
        assert " 33 %" in on.text


async def test_names_of_engines_without_a_row_are_whole_or_cut_in_their_middle(stage: Any, box: Any) -> None:
    """Thirty that begin alike: a name cut at its end would be that of any of them."""
    names = [f"qwen3-coder-30b-a3b-instruct-nvfp4-{number}/eagle3" for number in range(30)]
    async with stage(box.snapshot(engines={name: box.engine(name) for name in names}), size=(80, 24)) as on:
        (row,) = (line.rstrip() for line in on.lines if " more: " in line)
        assert row.startswith(" + 26 more: ")
        assert row.endswith("/eagle3, …")


async def test_a_click_makes_an_engine_large(stage: Any, box: Any) -> None:
    both = {box.gpt: box.engine(), box.coder: box.engine(box.coder, ready_at=box.now - 9000)}
    async with stage(box.snapshot(engines=both), size=(100, 30)) as on:
        row = next(i for i, line in enumerate(on.lines) if line.startswith(f" {box.coder} "))
        await on.pilot.click(offset=(3, row))
        await on.settle()
        assert on.lines[1].startswith(f"╭ {box.coder} ──")


def test_no_two_engines_look_alike_in_the_memory_bar(box: Any) -> None:
    """Twelve of them, each with a fill of its own; free memory and the reserve stay in the legend."""
    memory = box.sample(engines={f"engine-{number}": 6 * GIB for number in range(12)}).memory
    engines = [part for part in memory_parts(memory) if part.name.startswith("engine-")]
    assert len({part.glyph for part in engines}) == 12
    assert len(text.plain_text(memory_bar(memory, 76))) == 76
    for width in (56, 76, 120):
        rows = [text.plain_text(row) for row in legend_rows(memory, width)]
        assert all(len(row) <= width for row in rows)
        told = "  ".join(rows)
        assert "engines " in told or "engine-11" in told
        assert "free 16.4" in told
        assert "reserve 10.0" in told


def test_an_engine_keeps_its_fill_when_a_smaller_one_comes(box: Any) -> None:
    alone = memory_parts(box.sample(engines={"gpt-oss-120b": 77 * GIB}).memory)
    both = memory_parts(box.sample(engines={"gemma-3-4b": 18 * GIB, "gpt-oss-120b": 77 * GIB}).memory)
    assert alone[0] == both[0]


@pytest.mark.parametrize("cells", [9, 12, 16, 20])
def test_names_are_cut_so_that_they_can_be_told_apart(cells: int) -> None:
    names = ("qwen3-coder-30b-nvfp4", "qwen3-coder-30b-nvfp4/eagle3", "qwen3-coder-30b-nvfp4/mtp")
    cut = [text.shorten(name, cells) for name in names]
    assert len(set(cut)) == 3
    assert all(len(name) <= cells for name in cut)
    assert text.shorten("名前の長いプロファイル", 9) == "名前…イル"


async def test_a_kill_of_the_guard_is_in_the_list_of_swaps(stage: Any, box: Any) -> None:
    kill = GuardKill(at=box.now - 60, profile=box.gpt, available=3 * GIB, reason="3.0 GiB were available, floor 4.0.")
    async with stage(box.snapshot(guard=Guard(mode="act", kills=(kill,))), size=(100, 30)) as on:
        await on.press("6", "v")
        (row,) = (line for line in on.lines if "✗ guard killed" in line)
        assert "13:46:00" in row
        assert box.gpt in row
        await on.press("enter")
        await on.until(lambda: "3.0 GiB were available" in on.text)


async def test_the_charts_are_drawn_from_what_was_measured(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(sample=None, engines={box.gpt: box.engine()}), size=(100, 40)) as on:
        samples = [box.sample(at=box.now - 200 + at, decode=60.0 if at < 100 else 30.0) for at in range(200)]
        await on.happen(*(SampleTaken(sample=sample) for sample in samples))
        card = on.lines[1 : next(i for i, line in enumerate(on.lines) if line.startswith("╰"))]
        early, late = (sum("⠁" <= line[column] <= "⣿" for line in card) for column in (45, 75))
        assert early >= 2 * late - 1 > 1


@pytest.mark.parametrize(("total", "each", "decoding", "told"), [
    (59.0, 59.0, 1, "104 % of published"), (39.5, 52.3, 1, "92 % of published"), (80.5, 40.2, 1, ""),
    (59.0, 29.5, 2, ""), (None, None, 1, ""),
])  # fmt: skip
def test_a_rate_is_compared_with_one_requests_only_while_one_decodes(
    total: float | None, each: float | None, decoding: int, told: str
) -> None:
    """The total lags: just after the second request's end it is still the rate of two."""
    speed = Speed(total=total, each=each, decoding=decoding, computing=0, median=55.0, published=57.0)
    assert text.plain_text(compared(speed)) == told


def test_the_median_and_the_published_rate_keep_their_place(box: Any) -> None:
    """Behind the glyph of their line while one request decodes; as words, which say so, while several do."""
    view, engine = View(now=box.now, here=box.now, snapshot=box.snapshot()), box.engine()
    alone = Speed(total=59.0, each=59.0, decoding=1, computing=0, median=55.0, published=57.0)
    told = [
        [text.plain_text(row)[-13:].strip() for row in chart_rows(view, engine, speed, 60, 5)]
        for speed in (alone, alone._replace(total=110.0, each=55.0, decoding=2))
    ]
    assert told == [["", "", "", "┄median 55.0", "╌publ.  57.0"], ["", "", "at n=1", "median 55.0", "publ.  57.0"]]


async def test_the_console_has_eighth_blocks_for_braille(stage: Any, box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "linux")
    async with stage(box.snapshot(sample=None, engines={box.gpt: box.engine()}), size=(100, 40)) as on:
        await on.happen(*(SampleTaken(sample=box.sample(at=box.now - 200 + at, decode=60.0)) for at in range(200)))
        assert not any("⠀" <= each <= "⣿" for each in on.text)
        assert "█" * 20 in on.text.partition("╰")[0], on.text


@pytest.mark.parametrize(
    ("gpu", "steps", "decoding", "told"),
    [("NVIDIA GB10", 99.0, 1, "58 % of roofline"), ("NVIDIA RTX 4090", 99.0, 1, ""), ("NVIDIA GB10", None, 1, ""),
     ("NVIDIA GB10", 99.0, 2, "")],
)  # fmt: skip
def test_the_roofline_is_told_of_one_request_on_the_memory_that_it_is_computed_for(
    box: Any, gpu: str, steps: float | None, decoding: int, told: str
) -> None:
    """Other boxes have another bandwidth, and two requests another ceiling."""
    sample = box.sample()
    running = {f"r{i}": box.request(f"r{i}") for i in range(decoding)}
    engine = box.engine(most_steps_s=steps)
    state = box.snapshot(
        engines={box.gpt: engine}, requests=running, recent=(), sample=sample.replace(gpu=sample.gpu.replace(name=gpu))
    )
    speed = speed_of(View(now=box.now, here=box.now, snapshot=state), engine)
    assert text.plain_text(of_roofline(speed)) == told


async def test_a_wide_and_low_terminal_has_no_frames_either(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(200, 15)) as on:
        assert not set("╭╰│") & set(on.text)
        assert "prompt" in on.text
        assert "codex" in on.text


async def test_brackets_in_the_footer_are_keys(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(140, 40)) as on:
        await on.press("6")
        before = on.lines[1]
        foot = on.lines[39]
        await on.pilot.click(offset=(foot.index("[ ] window") + 2, 39))
        await on.settle()
        assert on.lines[1] != before


async def test_the_row_of_the_gpu_leaves_out_what_has_no_room(stage: Any, box: Any) -> None:
    """At 80 columns a word that explains low power left half a word of the pressure."""
    sample = box.sample().replace(low_power=True)
    async with stage(box.snapshot(sample=sample), size=(80, 24)) as on:
        assert "unplug AC 60 s" in on.text
        assert "press…" not in on.text


async def test_a_swap_of_another_day_has_its_date(stage: Any, box: Any) -> None:
    """A time alone was taken for last night's."""
    old = box.swap(outcome=SwapOutcome.DONE, started_at=box.now - 3 * 86400 - 60, ended_at=box.now - 3 * 86400)
    async with stage(box.snapshot(swaps=(old,)), size=(80, 24)) as on:
        await on.press("6", "v")
        assert time.strftime("%a %H:%M", time.localtime(box.now - 3 * 86400)) in on.text
