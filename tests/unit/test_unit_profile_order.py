"""Order of profiles in lists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sparkdash.domain.phrases import by_family


def profile(name: str, cannot_run: str | None = None) -> Any:
    return SimpleNamespace(name=name, cannot_run=cannot_run)


def test_families_that_cannot_run_come_last() -> None:
    """In natural order, the base before its variants; a family with one member that can run keeps its place."""
    given = [
        profile("a", "no image"),
        profile("a/x", "no image"),
        profile("m-10"),
        profile("m-2/z"),
        profile("m-2"),
        profile("b", "no image"),
        profile("b/y"),
    ]
    assert [one.name for one in by_family(given)] == ["b", "b/y", "m-2", "m-2/z", "m-10", "a", "a/x"]
