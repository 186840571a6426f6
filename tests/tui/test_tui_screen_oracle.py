"""The oracle of screens finds each kind of broken screen, and none in a whole one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from screen_oracle import Box, Looked, faults

TITLE = " sparkdash  spark-1  coder/eagle3 ● ready    13:47"
FOOT = " 1-7 pages                        / find  ? help  "
WHOLE = (
    TITLE,
    "╭ coder/eagle3 ─────────────╮╭ memory ───────────╮",
    "│ decode 57.9 tok/s         ││ 78.2 GiB of 121.7 │",
    "├───────────────────────────┤│ 终端 12.0         │",
    "│ coder…mtp 4.2  co…eagle3  ││                   │",
    "╰ ● ready 2h14m ────────────╯╰───────────────────╯",
    FOOT,
)
NAMES = frozenset({"coder/eagle3", "coder/mtp", "coder/plain"})


def screen(*lines: str, **changes: object) -> Looked:
    seen = Looked(lines=lines, columns=50, rows=7, names=NAMES, engines=frozenset({"coder/eagle3"}))
    return replace(seen, **changes)


def test_a_whole_screen_has_no_fault() -> None:
    """Wide characters count as two cells, names may be cut where one alone fits."""
    tall = (*WHOLE[:5], *[WHOLE[4]] * 18, *WHOLE[5:])
    assert faults(screen(*tall, rows=25)) == []


@pytest.mark.parametrize(
    ("line", "before", "after", "told"),
    [
        (1, "─╮╭", "──╭", "its upper edge is open"),
        (1, "╭ memory", "─ memory", "a corner ╮ without its frame"),
        (5, "────────────╯", "─────────────", "its sides end at line 5"),
        (3, "─┤", "─ ", "its sides end at line 3"),
        (2, " ││", "  │", "its sides end at line 2"),
        (2, "121.7 │", "121.74│", "text touches the frame in line 2"),
        (2, "57.9 tok/s", "57.… tok/s", "a figure is cut in line 2"),
        (2, "57.9 tok/s", "…7.9 tok/s", "a figure is cut in line 2"),
        (2, "57.9 tok/s", "┏━┓┗…tok/s", "a large figure is cut in line 2"),
        (2, "57.9 tok/s", "nan  tok/s", "'nan' in line 2"),
        (2, "57.9 tok/s", "None tok/s", "'None' in line 2"),
        (2, "57.9", "57.9\u200e", "a control character in line 2"),
        (4, "coder…mtp", "coder…   ", "coder… may be each of coder/eagle3, coder/mtp, coder/plain: line 4"),
        (3, "终端 ", "终 ", "line 3 is 48 cells wide"),
        (0, "13:47", "13:4…", "the title ends without the time"),
        (6, "1-7 pages", "1-7 pag… ", "the footer does not begin with the pages"),
        (6, "? help", "? h…  ", "the footer does not end with the help"),
    ],
)
def test_a_broken_screen_is_found(line: int, before: str, after: str, told: str) -> None:
    assert before in WHOLE[line]
    broken = [*WHOLE[:line], WHOLE[line].replace(before, after, 1), *WHOLE[line + 1 :]]
    assert any(told in fault for fault in faults(screen(*broken, columns=50, rows=7))), faults(screen(*broken))


def test_what_must_be_seen_and_is_not_is_found() -> None:
    """An engine that nobody shows, a promised text, a row that fell off."""
    assert faults(screen(*WHOLE, engines=frozenset({"gemma"}))) == ["gemma is nowhere"]
    assert faults(screen(*WHOLE, shows=("stalled",))) == ["'stalled' is nowhere"]
    assert faults(screen(*WHOLE[:-1])) == ["6 lines instead of 7"]


def test_of_a_page_under_a_dialog_only_the_dialog_is_judged() -> None:
    """Its own frame must be whole; the frames below it are covered."""
    covered = [*WHOLE[:2], "│ decode   ╭ help ────────╮ GiB of 121.7 │        ",
               "├──────────│ j k  moves   │端 12.0         │      ",
               "│ coder…mtp╰─ esc closes ─╯                │      ", *WHOLE[5:]]  # fmt: skip
    seen = screen(*covered, over=Box(2, 4, 11, 26), engines=frozenset())
    assert faults(seen) == []
    covered[3] = covered[3].replace("moves   │", "moves    ")
    assert any("its sides end" in fault for fault in faults(replace(seen, lines=covered)))
