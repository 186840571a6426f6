"""The logbook: what an engine says now, whatever its runtime does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from sparkdash.errors import HostError
from sparkdash.supervisor.state import logbook
from sparkdash.supervisor.state.logbook import Logbook


class Said:
    """A runtime that has these lines; None: it hangs."""

    def __init__(self, lines: list[str] | None, error: HostError | None = None) -> None:
        self._lines = lines
        self._error = error

    async def logs(self, _name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        if self._error:
            raise self._error
        if self._lines is None:
            await asyncio.Event().wait()
        for line in (self._lines or [])[-(tail or 0) :]:
            yield line


def book_of(runtime: Said) -> Logbook:
    book = Logbook(cast("Any", runtime))
    book.open("a", "sparkdash-a")
    book.add("a", "its start")
    return book


async def test_the_last_lines_are_those_of_now() -> None:
    """What was kept while it loaded is minutes or days old."""
    assert await book_of(Said(["its start", "then", "now"])).recent("a", 2) == ["then", "now"]


@pytest.mark.parametrize("runtime", [Said(None), Said([], HostError("podman does not answer."))])
async def test_a_runtime_that_does_not_tell_leaves_what_was_kept(
    runtime: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent, or with an error."""
    monkeypatch.setattr(logbook, "RECENT_S", 0.1)
    assert await book_of(runtime).recent("a", 200) == ["its start"]
