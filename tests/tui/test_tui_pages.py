"""The other pages, and the keys that work everywhere."""

import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from xml.etree import ElementTree

import pytest

from sparkdash.domain.event import Level, Notice, RequestChanged
from sparkdash.domain.images import ImageBuild, Inventory, Item, NodeStock, Stock
from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.request import RequestState
from sparkdash.domain.swap import DefaultProfile, Plan, SwapOutcome
from sparkdash.errors import DaemonError
from sparkdash.tui.lines.swap_progress import plan_lines
from sparkdash.tui.mirror import View
from sparkdash.tui.screens.requests import RequestDetail
from sparkdash.tui.text import Style, plain_text
from sparkdash.tui.widgets.header import Footer
from sparkdash.tui.widgets.requests import RequestTable
from sparkdash.units import GIB


async def test_without_a_daemon_no_page_says_that_there_is_nothing(stage: Any) -> None:
    async with stage() as on:
        for page in "234567":
            await on.press(page)
            assert not re.search(r"No (profile|request|run)|nothing here", on.text), on.text


async def test_the_default_profile_is_marked(stage: Any, box: Any) -> None:
    default = DefaultProfile(profile="qwen3.5-122b", after_s=900)
    async with stage(box.snapshot(default=default), size=(120, 30)) as on:
        await on.press("2")
        (row,) = (line for line in on.rows if "default" in line)
        assert "qwen3.5-122b default" in row


async def test_where_there_is_room_it_goes_to_the_reason(stage: Any, box: Any) -> None:
    why = "the source names two Sparks and a switch between them, which this program does not start"
    worse = box.profile("far", cannot_run=why)
    async with stage(box.snapshot(profiles=(*box.snapshot().profiles, worse)), size=(160, 30)) as on:
        await on.press("2")
        assert not any(row.startswith("far ✗") for row in on.rows)
        assert "▸ cannot run here 1" in on.rows, "one line, until it is asked for"
        assert on.lines[1].index("context") == 3 + len("  ├ eagle3  eagle3 k=1") + 1 + 2
        await on.press("G", "enter")
        assert f"far ✗ cannot run: {why} (⏎ why)" in on.rows
        await on.press("slash", *"far", "enter")
        assert any(row.startswith("far ✗") for row in on.rows), "its section is open"
        await on.press("escape", "G", "left", "slash", *"far", "enter")
        assert not any(row.startswith("far ✗") for row in on.rows), "a search hides what cannot run"
        await on.press("escape", "g", "left")
        assert on.rows[2] == "▸ runs 1"


async def test_a_profile_of_more_boxes_than_there_are_cannot_run_here(stage: Any, box: Any) -> None:
    wide, either = box.profile("wide", nodes=2), box.profile("either", nodes=2, fewer={1: "0123456789ac"})
    async with stage(box.snapshot(profiles=(*box.snapshot().profiles, wide, either)), size=(160, 30)) as on:
        await on.press("2")
        assert any(row.startswith("either") for row in on.rows)
        assert "▸ cannot run here 1" in on.rows
        assert not any(row.startswith("wide") for row in on.rows)


async def test_what_is_not_on_the_box_is_named_with_what_fetches_it_until_it_is_here(stage: Any, box: Any) -> None:
    here, gone = Item(here=True, size=GIB), Item(here=False)
    async with stage(box.snapshot()) as on:
        on.daemon.stock = Inventory(
            stock={box.gpt: Stock(image=here, weights=here), box.coder: Stock(image=here, weights=gone),
                   "qwen3.5-122b": Stock(weights=here)}
        )  # fmt: skip
        await on.press("2", "j", "j")
        first = [next(word for word in row.split() if len(word) > 1) for row in on.rows[2:8]]
        assert first == ["runs", box.gpt, "on", "qwen3.5-122b", "used", box.coder], "under their headings"
        assert "qwen3.5-122b vLLM 0.19.0 84 GiB - 51.0 on disk" in on.rows
        assert "⚠ weights not on this box: sparkdash pull qwen3-coder-30b-nvfp4" in on.rows
        on.daemon.stock = Inventory(stock={box.coder: Stock(image=here, weights=here)})
        await on.later(6)
        await on.press("k", "j")
        assert "B qwen3-coder-30b-nvfp4 vLLM 0.19.0 27 GiB 67.2 68.0 on disk" in on.rows


async def test_what_another_node_has_is_named_with_it(stage: Any, box: Any) -> None:
    here, gone = Item(here=True, size=GIB), Item(here=False)
    whole, half = {"spark2": NodeStock(image=True, weights=True)}, {"spark2": NodeStock(image=True, weights=False)}
    stock = {
        box.coder: Stock(image=here, weights=here, nodes=whole),
        box.eagle: Stock(image=gone, weights=gone, nodes=whole),
        "qwen3.5-122b": Stock(weights=here, nodes=half),
    }
    async with stage(box.snapshot()) as on:
        on.daemon.stock = Inventory(stock=stock)
        await on.press("2", "j")
        assert "B qwen3-coder-30b-nvfp4 vLLM 0.19.0 27 GiB 67.2 68.0 on disk, spark2" in on.rows
        assert "├ eagle3 eagle3 k=1 vLLM 0.19.0 28 GiB - 73.9 on spark2" in on.rows
        assert "qwen3.5-122b vLLM 0.19.0 84 GiB - 51.0 on disk" in on.rows


async def test_an_image_that_is_built_is_never_offered_as_a_pull(stage: Any, box: Any) -> None:
    build = ImageBuild(context="images/coder", minutes=45)
    world = box.snapshot()
    changed = {"build": build, "nearest": box.gpt}
    profiles = tuple(p.model_copy(update=changed) if p.name == box.coder else p for p in world.profiles)
    async with stage(world.model_copy(update={"profiles": profiles}), size=(120, 30)) as on:
        on.daemon.stock = Inventory(stock={box.coder: Stock(image=Item(here=False), weights=Item(here=True, size=GIB))})
        await on.press("2", "j")
        assert any(row.startswith("B qwen3-coder-30b-nvfp4") and row.endswith("to build") for row in on.rows)
        told = " ".join(on.text.split())
        assert "It must be built: `sparkdash build qwen3-coder-30b-nvfp4`, about 45m00s." in told


async def test_walking_and_finding(on: Any) -> None:
    await on.press("2", "G")
    assert "╭ qwen3.5-122b ─" in on.text
    await on.press("k", "g")
    assert "╭ gpt-oss-120b ─" in on.text
    await on.press("slash", *"eagle", "enter")
    assert "68.0" not in on.text
    assert "╭ qwen3-coder-30b-nvfp4/eagle3 ─" in on.text
    assert on.lines[22].strip() == "eagle", "it is seen that not all is"
    assert "Showing rows with “eagle”; esc shows all" in on.text
    await on.press("escape")
    assert "68.0" in on.text


async def test_digits_typed_while_finding_are_text_and_finding_nothing_says_so(on: Any) -> None:
    await on.press("2", "slash", "1", "2", "2")
    assert "qwen3.5-122b" in on.text
    assert "57.0" not in on.text
    await on.press("escape", "3", "slash", *"granted")
    assert "no row contains “granted”; esc shows all" in on.text, "a key of what y copies is no word of the row"


async def test_a_live_list_is_seen_from_its_top_until_one_walks(stage: Any, box: Any) -> None:
    """Then the cursor stays on its row. A page that was left alone shows what comes; so does escape, on the dashboard too."""
    over = [box.request(f"r{n}", RequestState.DONE, client=f"c{n}", finished_at=box.now) for n in range(60)]
    async with stage(box.snapshot(requests={}, recent=())) as on:
        await on.press("3")
        await on.happen(*(RequestChanged(request=one) for one in over[:30]))
        table = on.app.screen.query_one(RequestTable)
        assert table.cursor == "r29"
        assert on.lines[1].endswith("state   1-20/30 ")
        await on.press("j", "j")
        await on.happen(*(RequestChanged(request=one) for one in over[30:40]))
        assert table.cursor == "r27"
        await on.press("escape")
        assert table.cursor == "r39"
        await on.press("1", "j")
        await on.happen(*(RequestChanged(request=one) for one in over[40:]))
        assert " c59 " not in on.text
        await on.press("escape")
        assert " c59 " in on.text
        await on.press("y")
        assert "No row is selected" in on.text


async def test_a_request_is_described_no_longer_when_its_list_is_gone(stage: Any, box: Any) -> None:
    """A page that closes loses its lists before the rest, and may be painted in between."""
    async with stage(box.snapshot(), size=(160, 60)) as on:
        await on.press("3", "j")
        assert "│ profile " in on.text
        await on.app.screen.query(RequestTable).remove()
        on.app.screen.query_one(RequestDetail).redraw()
        await on.settle()
        assert "│ profile " not in on.text


async def test_what_was_asked_on_the_side_says_what_it_was(stage: Any, box: Any) -> None:
    count = box.request("r7", RequestState.DONE, route="/v1/messages/count_tokens", finished_at=box.now)
    async with stage(box.snapshot(recent=(count,))) as on:
        assert "codex gpt-oss-120b 4.0s - - - - ✓ count_tokens" in on.rows


async def test_y_copies_the_row(on: Any, box: Any) -> None:
    await on.press("2", "j", "y")
    assert on.app.clipboard == box.coder
    await on.press("3", "y")
    assert '"id":"r1"' in on.app.clipboard


async def test_no_page_breaks_in_a_sliver_of_a_terminal(stage: Any, box: Any) -> None:
    """A window drawn small for a moment ends nothing: every page draws, and the wide one comes back whole."""
    async with stage(box.snapshot(), size=(20, 6)) as on:
        await on.press(*"123456")
        await on.pilot.resize_terminal(3, 1)
        await on.pilot.resize_terminal(80, 24)
        await on.press("1")
        assert on.lines[1].startswith("╭ gpt-oss-120b ──")


async def test_the_log_follows_holds_and_finds(stage: Any, box: Any) -> None:
    lines = [f"INFO line {i}" for i in range(100)]
    lines[20] = "ERROR the needle \x1b[31mred\x1b[0m"
    async with stage(box.snapshot()) as on:
        on.daemon.log[box.gpt] = lines
        await on.press("5")
        assert "line 99" in on.text
        assert "following" in on.lines[1]
        await on.press("slash", *"needle", "enter")
        assert "ERROR the needle red" in on.text
        assert "held at " in on.lines[1]
        assert "“needle” 1 line," in on.text
        await on.press("G")
        assert "following" in on.lines[1]
        await on.press("space", "k")
        assert "held at" in on.lines[1]


async def test_a_log_goes_on_when_the_daemon_is_back(on: Any, box: Any) -> None:
    """The engine was adopted as it was: nothing else would have its log read again."""
    on.daemon.log[box.gpt] = ["INFO before"]
    on.daemon.cut = DaemonError("No daemon answers.")
    await on.press("5")
    assert "No daemon answers." in on.text
    await on.tell(box.lost)
    on.daemon.cut, on.daemon.log[box.gpt] = None, ["INFO before", "INFO after"]
    await on.tell(box.snapshot(seq=900))
    assert "after" in on.text
    assert "No daemon answers." not in on.text
    assert on.text.count("before") == 1


async def test_the_log_turns_to_the_engine_that_comes_up(stage: Any, box: Any) -> None:
    async with stage(box.swapping()) as on:
        on.daemon.log[box.coder] = ["loading the coder"]
        await on.press("5")
        assert "log qwen3-coder-30b-nvfp4" in on.lines[1]
        assert "loading the coder" in on.text


async def test_the_history_shows_stages_and_last_words(stage: Any, box: Any) -> None:
    failed = box.ended("s9", SwapOutcome.FAILED, failure=box.failure)
    async with stage(box.snapshot(swaps=(failed, box.ended("s8")))) as on:
        await on.press("6", "v")
        assert "✗ failed" in on.lines[2]
        await on.press("enter")
        assert "load 3m10s  warm 9.8s" in on.text
        assert "→ Lower gpu-memory-utilization" in on.text
        assert "ERROR engine core died" in on.text
        await on.press("escape", "j", "enter")
        assert "load 3m10s  warm 9.8s" in on.text
        assert "→ Lower gpu-memory-utilization" not in on.text


async def test_what_went_wrong_is_told_once(stage: Any, box: Any) -> None:
    """The failed start in full, without the notice of the same; a notice that names its profile has no second name."""
    swaps = (box.ended("s1", SwapOutcome.FAILED, failure=box.failure),)
    same = Notice(level=Level.ERROR, code="out_of_memory", text=box.failure.message, profile=box.coder, at=box.now)
    back = Notice(level=Level.INFO, code="repaired", text=f"{box.gpt} serves again.", profile=box.gpt, at=box.now)
    async with stage(box.snapshot(swaps=swaps, notices=(same, back)), size=(120, 40)) as on:
        await on.press("7", "n")
        assert on.text.count("ran out of memory while it loaded weights") == 1
        assert any("13:47:00 · gpt-oss-120b serves again." in line for line in on.lines)


async def test_the_history_gives_its_rows_to_the_swaps(stage: Any, box: Any) -> None:
    swaps = tuple(box.ended(f"s{number}") for number in range(12))
    old = Notice(level=Level.INFO, code="held", text="measured", at=box.now)
    async with stage(box.snapshot(swaps=swaps, notices=(old,))) as on:
        await on.press("6", "v")
        assert sum("✓ done" in line for line in on.lines) == len(swaps)
        assert any("13:47:00" in line and "measured" in line for line in on.lines)


def test_the_footer_tells_keys_from_words() -> None:
    (line,) = Footer("logs", "h l sideways  c end it  ? help").draw(View(now=0.0, here=0.0), 120, 1)
    assert [span.text for span in line if span.style is Style.STRONG][-3:] == ["h l", "c", "?"]


def test_a_plan_says_what_it_rests_on() -> None:
    """An estimate is tried although less is available, and nobody has to leave where nothing runs."""
    need = Need(basis=Basis.ESTIMATED, terms=(Term(name="weights", bytes=26 * GIB, source="headers"),))
    plan = Plan(profile="a", need=need, needs_bytes=26 * GIB, available_bytes=11 * GIB)
    assert [plain_text(line) for line in plan_lines(plan)] == [
        "fits: not sure · needs 26 GiB (estimated) of 11 GiB",
        "nothing has to leave · load time not known yet",
    ]
    none = Plan(profile="a", needs_bytes=26 * GIB, fits=False, verdict="It cannot start now: it needs 2 nodes.")
    assert [plain_text(line) for line in plan_lines(none)] == ["fits: no · It cannot start now: it needs 2 nodes."]


async def test_every_page_opens_without_a_daemon(stage: Any) -> None:
    async with stage(None) as on:
        for page in "1234567":
            await on.press(page)
            assert [len(line) for line in on.lines] == [80] * 24, page
            assert on.lines[23].startswith(" 1 Dash 2 Profiles"), page


async def test_the_palette_knows_every_action(on: Any) -> None:
    titles = [command.title for command in on.app.get_system_commands(on.app.screen)]
    for title in ("Switch to qwen3.5-122b", "Mark gpt-oss-120b as A", "Flip between A and B", "Stop gpt-oss-120b",
                  "Release gpt-oss-120b", "Save the screen as an SVG", "Theme: light"):  # fmt: skip
        assert title in titles
    assert not any(title.startswith(("Down", "Show all")) for title in titles), "moving needs no name"
    await on.press("2", "colon")
    assert titles.index("Switch to another profile") < titles.index("Page: Dash"), "what is used most comes first"
    await on.press(*"profile files again")
    while "Read the profile files again" not in on.text:
        await on.pilot.pause()
    await on.press("enter")
    assert on.daemon.asked == [("reload",)]


async def test_a_screenshot_tells_its_path(
    stage: Any, box: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with stage(box.snapshot(), size=(160, 40)) as on:
        await on.press("ctrl+s")
        told = on.text
    saved = re.search(rf"Saved ({re.escape(str(tmp_path))}/sparkdash-\S+\.svg)", told)
    assert saved is not None
    assert ElementTree.parse(saved[1]).getroot().tag.endswith("svg")


async def test_a_screenshot_that_cannot_be_written_is_told(
    stage: Any, box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_room = Mock(side_effect=OSError(28, "No space left on device"))
    async with stage(box.snapshot()) as on:
        monkeypatch.setattr("sparkdash.tui.app.SparkdashApp.save_screenshot", no_room)
        await on.press("ctrl+s")
        assert "The screenshot cannot be written: No space left" in on.text


async def test_q_leaves_and_orders_nothing(stage: Any, box: Any) -> None:
    async with stage(box.snapshot()) as on:
        await on.pilot.press("q")
        assert on.daemon.asked == []
    assert on.app.return_code == 0


async def test_the_mouse_opens_pages_and_picks_rows(on: Any) -> None:
    await on.pilot.click(offset=(10, 23))
    await on.settle()
    assert "publ." in on.text
    await on.pilot.click(offset=(10, 5))
    await on.settle()
    assert "╭ qwen3-coder-30b-nvfp4 ─" in on.text
    await on.pilot.click(offset=(10, 5), times=2)
    await on.settle()
    assert "⏎ s switch   e edit   esc back" in on.text


async def test_a_click_on_a_heading_sorts_by_what_it_shows(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(140, 30)) as on:
        await on.press("2")
        before = on.rows

        async def clicked(heading: str) -> list[str]:
            await on.pilot.click(offset=(on.lines[1].index(heading) + 1, 1))
            await on.settle()
            return [line[3:].split()[0] for line in on.lines[2:7]]

        assert await clicked("needs") == ["qwen3.5-122b", box.gpt, box.eagle, box.coder, f"{box.coder}/mtp"]
        assert "▾needs" in " ".join(on.lines[1].split())
        assert (await clicked("needs"))[:3] == [box.coder, box.eagle, box.gpt]
        assert (await clicked("best"))[:2] == [box.coder, box.gpt]
        await clicked("best")
        await clicked("best")
        assert on.rows == before


async def test_no_colour_means_no_colour(stage: Any, box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with stage(box.snapshot()) as on:
        await on.press("2")
        strips = on.app.screen._compositor.render_strips()
        colours = {
            colour.name
            for strip in strips
            for segment in strip
            if segment.style
            for colour in (segment.style.color, segment.style.bgcolor)
            if colour
        }
        assert colours <= {"default"}
        assert "● ready" in on.text


async def test_the_palette_shows_without_colours_which_command_enter_runs(
    stage: Any, box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with stage(box.snapshot()) as on:
        await on.press("colon")
        await on.until(lambda: "Switch to another profile" in on.text)
        segments = [segment for strip in on.app.screen._compositor.render_strips() for segment in strip]
        lit = "".join(segment.text for segment in segments if segment.style and segment.style.underline)
        assert "Switch to another profile" in lit
        assert "End what is" not in lit


async def test_both_themes_colour_states_differently_from_text(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(80, 30)) as on:
        for theme in ("dark", "light", "contrast", "safe", "safe-light"):
            on.app.action_look(theme)
            await on.settle()
            styles = {
                words: segment.style.color
                for strip in on.app.screen._compositor.render_strips()
                for segment in strip
                for words in ("▶ decodes", "◌ waits #1", "✗ engine_crash", "codex")
                if segment.style and words in segment.text
            }
            assert len(styles) == len(set(styles.values())) == 4


async def test_at_most_four_paints_a_second(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), paint_every_s=60.0) as on:
        before = on.app.paints
        await on.happen(*(RequestChanged(request=box.request(f"b{i}")) for i in range(200)))
        assert on.app.paints - before <= 1
        assert on.app.mirror.view().snapshot is not None
        assert len(on.app.mirror.view().snapshot.requests) == 203


async def test_nothing_new_repaints_nothing(on: Any, box: Any) -> None:
    rendered: list[object] = []
    for panel in on.app.screen.query("Panel"):
        real = panel.render_line
        panel.render_line = lambda y, real=real: rendered.append(y) or real(y)  # type: ignore[method-assign]
    await on.later(0)
    assert rendered == []
    await on.happen(RequestChanged(request=box.request("new")))
    assert 0 < len(rendered) < 12
