"""Finding in logs, folded access lines, help per page, and the mouse on every hint."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from states_pages import with_settings
from textual import events
from textual._xterm_parser import XTermParser
from textual.command import CommandPalette

from sparkdash.tui import theme
from sparkdash.tui.app import separate_escape
from sparkdash.tui.lines.log_lines import log_line
from sparkdash.tui.screens.dialog import Dialog
from sparkdash.tui.text import plain_text
from sparkdash.tui.widgets.log import LogRow, add_folded, drop_first

OK = 'INFO:     127.0.0.1:5{:04d} - "POST /v1/chat/completions HTTP/1.1" 200 OK'
BAD = 'INFO:     127.0.0.1:50001 - "POST /v1/completions HTTP/1.1" 400 Bad Request'
LLAMA = "srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200"


def folded(*lines: str) -> list[LogRow]:
    rows: list[LogRow] = []
    for line in lines:
        add_folded(rows, line)
    return rows


def test_access_lines_are_one_row_and_other_lines_stay() -> None:
    lines = ("loading", OK.format(1), BAD, OK.format(2), "Avg prompt throughput", LLAMA, LLAMA, OK.format(3))
    assert [row.shown() for row in folded(*lines, "after", OK.format(4))] == [
        "loading",
        "··· 3 access lines, 1 not 2xx: POST /v1/completions 400 ···",
        "Avg prompt throughput",
        "··· 3 access lines, all 2xx ···",
        "after",
        OK.format(4),
    ]


def test_the_oldest_lines_go_out_of_a_fold_one_by_one() -> None:
    rows = folded(OK.format(1), OK.format(2), "after")
    assert [drop_first(rows), drop_first(rows), drop_first(rows), drop_first(rows)] == [0, 1, 1, 1]
    assert rows == []


async def test_find_goes_to_the_hit_and_marks_every_one(stage: Any, box: Any, daemon: Any) -> None:
    """In the middle of the panel, also where the text stands far to the right."""
    lines = [f"line {number}" for number in range(200)]
    lines[50] = "x" * 120 + " needle and needle"
    lines[150] = "the needle"
    daemon.log[box.gpt] = lines
    async with stage(box.snapshot()) as on:
        await on.press("5", "slash", *"needle")
        assert any("the needle" in line for line in on.lines[8:16])
        await on.press("enter", "N")
        (panel,) = on.app.screen.query("LogPanel")
        hits = [span for line in panel._lines for span in line if span.style == "hit"]
        assert [span.text for span in hits] == ["needle", "needle"]
        assert all(span.lit for span in hits), "the search stands here"
        assert "needle and needle" in on.text
        await on.press("n")
        assert "the needle" in on.text


async def test_access_lines_are_folded_until_they_are_asked_for(stage: Any, box: Any, daemon: Any) -> None:
    daemon.log[box.gpt] = ["first", *(OK.format(number) for number in range(38)), "last"]
    async with stage(box.snapshot()) as on:
        await on.press("5", "o")
        assert "50037" in on.text
        await on.press("o", "slash", *"50020")
        assert "50020" in on.text
        await on.press("escape")
        assert "··· 38 access lines" in on.text


VLLM = (
    "(APIServer pid=16) INFO 11-28 20:42:30 [loggers.py:275] Engine 000: Avg prompt throughput: 739.2 tokens/s, "
    "Avg generation throughput: 57.1 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 2.0%, "
    "Prefix cache hit rate: 81.0%"
)
SGLANG = (
    "[2026-11-28 20:42:30] Decode batch, #running-req: 2, #token: 300, gen throughput (token/s): 9.5, #queue-req: 7,"
)


@pytest.mark.parametrize(("line", "shown", "style"), [
    (VLLM, "20:42:30  prompt   739 decode   57.1 tok/s run  1 wait  0 kv  2 % prefix  81 %", "plain"),
    (SGLANG, "20:42:30               decode    9.5 tok/s run  2 wait  7", "plain"),
    ("(EngineCore pid=3) ERROR 11-28 20:42:31 [core.py:1] out of memory", "20:42:31  ERROR out of memory", "bad"),
    ("WARNING 11-28 20:42:31 [a.py:3] slow kernel", "20:42:31  WARNING slow kernel", "warn"),
    ("INFO:     Application startup complete.", "          Application startup complete.", "plain"),
    ("Loading shards: 63% 5/8", "          Loading shards: 63% 5/8", "plain"),
])  # fmt: skip
def test_an_engines_line_is_its_time_its_level_and_its_text(line: str, shown: str, style: str) -> None:
    """The figures that vLLM and SGLang write every few seconds stand in columns."""
    told = log_line(line)
    assert plain_text(told).rstrip() == shown
    assert told[-1].style == style


SIGNS = {"slash": "/", "colon": ":", "space": " ", "escape": "\x1b", "enter": "\r", "backspace": None}


def post_keys(on: Any, *keys: str) -> None:
    """As one read of the terminal: nothing is drawn between them."""
    for key in keys:
        on.app.post_message(events.Key(key, SIGNS.get(key, key)))


THEME_LIGHT = [{":": "colon", " ": "space"}.get(sign, sign) for sign in "theme: light"] + ["enter"]


async def test_escape_and_a_digit_that_come_together_are_two_commands(on: Any, box: Any) -> None:
    """As from a fast hand or a terminal multiplexer: the digit opens its page."""
    await on.press("slash", *"co")
    post_keys(on, "escape", "5")
    await on.until(lambda: f"╭ log {box.gpt} " in on.text)
    await on.press("1")
    assert "co" not in on.lines[22]


@pytest.mark.parametrize(("page", "told", "not_told"), [
    ("5", "fold access lines", "replay the request"), ("3", "replay the request", "fold access lines"),
])  # fmt: skip
async def test_help_begins_with_the_keys_of_its_page(stage: Any, box: Any, page: str, told: str, not_told: str) -> None:
    async with stage(box.snapshot(), size=(100, 60)) as on:
        await on.press(page, "question_mark")
        assert "╭ help: " in on.text
        assert told in on.text
        assert not_told not in on.text


async def test_every_hint_of_the_footer_answers_a_click(stage: Any, box: Any) -> None:
    async with stage(box.snapshot(), size=(120, 30)) as on:
        foot = on.lines[29]
        await on.pilot.click(offset=(foot.index("? help") + 3, 29))
        await on.settle()
        assert isinstance(on.app.screen, Dialog)
        row = next(i for i, line in enumerate(on.lines) if "esc close" in line)
        await on.pilot.click(offset=(on.lines[row].index("esc close") + 1, row))
        await on.settle()
        assert not isinstance(on.app.screen, Dialog)
        await on.pilot.click(offset=(foot.index("/ find"), 29))
        await on.settle()
        assert on.app.screen.query_one("SearchField").display
        await on.press("escape")
        await on.pilot.click(offset=(foot.index("s switch"), 29))
        await on.settle()
        assert "About gpt-oss-120b" in on.text


@pytest.mark.parametrize(("read", "keys"), [
    ("\x1b5", "escape 5"), ("\x1bq", "escape q"), ("\x1bj", "escape j"), ("\x1b0", "escape 0"), ("\x1b[A", "up"),
    ("\x1bOP", "f1"), ("\x1bb", "ctrl+left"), ("£", "pound_sign"),
])  # fmt: skip
def test_escape_and_a_key_in_one_read_are_two_keys_and_longer_sequences_stay_one(read: str, keys: str) -> None:
    """Not a sign of another keyboard, which a field would take for text."""
    separate_escape()
    assert " ".join(event.key for event in XTermParser().feed(read) if isinstance(event, events.Key)) == keys


@pytest.mark.parametrize(("pressed", "keys", "is_done"), [
    (("2",), ("slash", *"embed", "enter"), lambda on: "Showing rows with “embed”" in on.text and on.daemon.asked == []),
    (("comma", "enter"), ("backspace", "backspace", "8", "enter"),
     lambda on: ("setting", "reserve_gib", "8") in on.daemon.asked),
    ((), ("colon", *THEME_LIGHT), lambda on: on.app.theme == theme.LIGHT and len(on.app.screen_stack) == 1),
], ids=["search", "value", "palette"])  # fmt: skip
async def test_keys_in_one_read_reach_a_field_in_their_order(
    stage: Any, box: Any, daemon: Any, pressed: tuple[str, ...], keys: tuple[str, ...], is_done: Any
) -> None:
    """What is typed, corrected and sent in one go is what counts, and no key is pressed on the page below."""
    with_settings(box, daemon)
    async with stage(box.snapshot()) as on:
        await on.press(*pressed)
        post_keys(on, *keys)
        await on.until(lambda: is_done(on))


async def test_enter_behind_the_words_of_a_command_runs_that_command(
    stage: Any, box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the one that stood first before the words were typed."""
    search = CommandPalette._search_for

    async def slow(palette: CommandPalette, words: str) -> AsyncIterator[Any]:
        await asyncio.sleep(0.1)
        async for hit in search(palette, words):
            yield hit

    async with stage(box.snapshot()) as on:
        await on.press("colon")
        await on.until(lambda: "Switch to another profile" in on.text)
        monkeypatch.setattr(CommandPalette, "_search_for", slow)
        post_keys(on, *THEME_LIGHT)
        await on.until(lambda: "Search for commands" not in on.text and len(on.app.screen_stack) == 1)
        assert on.app.theme == theme.LIGHT
