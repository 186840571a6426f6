"""Whole screens as text: every state at three sizes, compared with files that were agreed on, and at four more by rules alone.

Write them anew with SPARKDASH_WRITE_SCREENS=1 and look at the difference before you keep it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from screen_oracle import faults
from screen_shots import AGREED_SIZES, MORE_SIZES, shot
from screen_states import STATES

AGREED = Path(__file__).parent / "screens"


@pytest.mark.parametrize("name", STATES)
async def test_every_state_looks_as_agreed_and_has_no_fault(box: Any, link: Any, name: str) -> None:
    """No frame is cut, no name is lost, and nothing moved that nobody wanted to move."""
    seen, wrong = await looks(name, AGREED_SIZES, box, link)
    wrong += unlike(name, seen)
    assert not wrong, "\n".join(wrong)


@pytest.mark.full
@pytest.mark.parametrize("name", STATES)
async def test_no_state_has_a_fault_at_other_sizes(box: Any, link: Any, name: str) -> None:
    _, wrong = await looks(name, MORE_SIZES, box, link)
    assert not wrong, "\n".join(wrong)


async def looks(
    name: str, sizes: Sequence[tuple[int, int]], box: Any, link: Any
) -> tuple[dict[str, list[str]], list[str]]:
    """The lines of a state at each size, and the faults that the oracle finds in them."""
    seen: dict[str, list[str]] = {}
    wrong: list[str] = []
    async with shot(STATES[name], box, link) as on:
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
