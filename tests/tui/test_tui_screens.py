"""Whole screens as text: every state at three sizes, compared with files that were agreed on, and at four more by rules alone.

Write them anew with SPARKDASH_WRITE_SCREENS=1 and look at the difference before you keep it.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from screen_oracle import Box, Looked, faults
from screen_shots import AGREED_SIZES, MORE_SIZES, shot
from screen_states import STATES

AGREED = Path(__file__).parent / "screens"


@pytest.mark.parametrize("name", STATES)
async def test_every_state_looks_as_agreed_and_has_no_fault(box: Any, daemon: Any, name: str) -> None:
    """No frame is cut, no name is lost, and nothing moved that nobody wanted to move."""
    seen, wrong = await looks(name, AGREED_SIZES, box, daemon)
    wrong += unlike(name, seen)
    assert not wrong, "\n".join(wrong)


@pytest.mark.full
@pytest.mark.parametrize("name", STATES)
async def test_no_state_has_a_fault_at_other_sizes(box: Any, daemon: Any, name: str) -> None:
    _, wrong = await looks(name, MORE_SIZES, box, daemon)
    assert not wrong, "\n".join(wrong)


async def looks(
    name: str, sizes: Sequence[tuple[int, int]], box: Any, daemon: Any
) -> tuple[dict[str, list[str]], list[str]]:
    """The lines of a state at each size, and the faults that the oracle finds in them."""
    seen: dict[str, list[str]] = {}
    wrong: list[str] = []
    async with shot(STATES[name], box, daemon) as on:
        for size in sizes:
            await on.resize(size)
            title = f"{size[0]}x{size[1]}"
            seen[title] = on.lines
            wrong += [f"{title}: {fault}" for fault in faults(on.looked(size, STATES[name].shows))]
    return seen, wrong


def unlike(name: str, seen: dict[str, list[str]]) -> list[str]:
    """The first line that differs from the agreed screen, at each size."""
    path = AGREED / f"{name}.txt"
    if os.environ.get("SPARKDASH_WRITE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            "".join(f"== {title}\n" + "".join(f"{line.rstrip()}\n" for line in lines) for title, lines in seen.items())
        )
    agreed: dict[str, list[str]] = {}
    for line in path.read_text().split("\n")[:-1]:
        if line.startswith("== "):
            agreed[line.removeprefix("== ")] = before = []
        else:
            before.append(line)
    wrong = []
    for title, lines in seen.items():
        before, now = agreed.get(title, []), [line.rstrip() for line in lines]
        pairs = enumerate(zip(before, now, strict=False), 1)
        first = next((f"line {y}:\n- {old}\n+ {new}" for y, (old, new) in pairs if _steady(old) != _steady(new)), "")
        if first or len(before) != len(now):
            wrong.append(f"{title}: {first or f'{len(before)} lines before, {len(now)} now'}")
    return wrong


def _steady(line: str) -> str:
    """A line without the width of a chart's bucket, which depends on the size at which its series was read."""
    return re.sub(r"─+ [^─]* a bucket ─+", "", line)


def test_no_agreed_screen_is_left_of_a_state_that_is_gone() -> None:
    assert {path.stem for path in AGREED.iterdir()} == set(STATES)


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


@pytest.mark.parametrize(("line", "before", "after", "told"), [
    (1, "─╮╭", "──╭", "its upper edge is open"), (1, "╭ memory", "─ memory", "a corner ╮ without its frame"),
    (5, "────────────╯", "─────────────", "its sides end at line 5"), (3, "─┤", "─ ", "its sides end at line 3"),
    (2, " ││", "  │", "its sides end at line 2"), (2, "121.7 │", "121.74│", "text touches the frame in line 2"),
    (2, "57.9 tok/s", "57.… tok/s", "a figure is cut in line 2"),
    (2, "57.9 tok/s", "…7.9 tok/s", "a figure is cut in line 2"),
    (2, "57.9 tok/s", "┏━┓┗…tok/s", "a large figure is cut in line 2"),
    (2, "57.9 tok/s", "nan  tok/s", "'nan' in line 2"), (2, "57.9 tok/s", "None tok/s", "'None' in line 2"),
    (2, "57.9 tok/s", "   - tok/s", "'- tok/s' in line 2"),
    (2, "57.9", "57.9\u200e", "a control character in line 2"),
    (4, "coder…mtp", "coder…   ", "coder… may be each of coder/eagle3, coder/mtp, coder/plain: line 4"),
    (3, "终端 ", "终 ", "line 3 is 48 cells wide"), (0, "13:47", "13:4…", "the title ends without the time"),
    (6, "1-7 pages", "1-7 pag… ", "the footer does not begin with the pages"),
    (6, "? help", "? h…  ", "the footer does not end with the help"),
])  # fmt: skip
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
    """The dialog's own frame must be whole; the frames below it are covered."""
    covered = [*WHOLE[:2], "│ decode   ╭ help ────────╮ GiB of 121.7 │        ",
               "├──────────│ j k  moves   │端 12.0         │      ",
               "│ coder…mtp╰─ esc closes ─╯                │      ", *WHOLE[5:]]  # fmt: skip
    seen = screen(*covered, over=Box(2, 4, 11, 26), engines=frozenset())
    assert faults(seen) == []
    covered[3] = covered[3].replace("moves   │", "moves    ")
    assert any("its sides end" in fault for fault in faults(replace(seen, lines=covered)))
