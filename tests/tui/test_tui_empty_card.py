"""Card of a box on which nothing runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sparkdash.tui.widgets.card import _fitting

GIB = 2**30


def profile(gib: float | None, *, nodes: int = 1, cannot_run: str | None = None) -> Any:
    return SimpleNamespace(needs_bytes=None if gib is None else int(gib * GIB), nodes=nodes, cannot_run=cannot_run)


def snapshot(*profiles: Any, known: bool = True) -> Any:
    memory = SimpleNamespace(total=120 * GIB, reserve=10 * GIB) if known else None
    return SimpleNamespace(profiles=profiles, sample=SimpleNamespace(memory=memory))


def test_profiles_that_fit_beside_the_reserve_are_counted() -> None:
    """Those of unknown need, for two boxes, or that cannot run are neither."""
    found = snapshot(profile(110), profile(111), profile(None), profile(20, nodes=2), profile(20, cannot_run="why"))
    assert _fitting(found) == "No engine is loaded. 1 of 2 profiles of known need fit into 120.0 GiB."


def test_nothing_is_counted_while_the_memory_is_unknown() -> None:
    """Nor before the daemon has answered."""
    assert _fitting(snapshot(profile(1), known=False)) == _fitting(None) == "No engine is loaded."
