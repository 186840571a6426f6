"""How soon a page is on the screen after its key."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest


def pages_drawn(on: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list that each page drawn from now on is put into."""
    drawn: list[str] = []

    def note() -> None:
        if not on.app._batch_count:  # while paints are held, nothing reaches the terminal
            drawn.append(on.app.screen.title_key)

    monkeypatch.setattr(on.app, "post_display_hook", note)
    return drawn


@pytest.mark.parametrize("opened_before", [False, True])
async def test_a_page_is_drawn_with_its_key_and_waits_for_no_timer(
    opened_before: bool, stage: Any, box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Textual holds every paint for 50 ms when pages are switched."""
    async with stage(box.snapshot()) as on:
        if opened_before:
            await on.press("3", "1")
        drawn = pages_drawn(on, monkeypatch)
        monkeypatch.setattr(on.app, "set_timer", Mock())  # none of them is ever due
        await on.press("3")
        await on.until(lambda: "requests" in drawn)
        assert "codex" in on.text


async def test_paints_go_on_when_the_coming_screen_ends_before_it_takes_over(
    stage: Any, box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stage(box.snapshot()) as on:
        drawn = pages_drawn(on, monkeypatch)
        with monkeypatch.context() as lost:
            lost.setattr(on.app, "call_later", Mock())
            on.app.delay_update(0.01)
        await on.until(lambda: "dashboard" in drawn)
        assert drawn
