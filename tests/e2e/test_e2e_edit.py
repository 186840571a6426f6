"""Editing a profile file while its engine runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

PROFILE = """\
profile: rehearsal
about: {about}
engine: sim
context: 8192
sim: {{load_s: 1, time_scale: 20, memory_gib: 0.1}}
memory: {{weights_gib: 0.1, kv_gib: 0, overhead_gib: 0, source: invented}}
"""


@pytest.fixture
def edited(new_daemon: Callable[..., Any]) -> Iterator[Any]:
    """A daemon whose one simulated engine is ready."""
    daemon = new_daemon(runtime="process", reserve_gib=0)
    daemon.write("rehearsal", PROFILE.format(about="before"))
    daemon.start()
    assert daemon.sparkdash("use", "rehearsal", "--yes").returncode == 0
    yield daemon
    daemon.end()


def about(state: dict[str, Any]) -> str:
    """What the catalog says of the profile."""
    return str(next(p["about"] for p in state["profiles"] if p["name"] == "rehearsal"))


def test_an_edit_is_seen_on_the_feed_and_leaves_the_engine_alone(edited: Any) -> None:
    """Good edits arrive without being asked for, a broken one keeps the last good version; the engine never restarts."""
    engine = edited.state()["engines"]["rehearsal"]
    assert engine["state"] == "ready"

    edited.write("rehearsal", PROFILE.format(about="after the edit"))
    edited.until(lambda state: about(state) == "after the edit")
    edited.write("rehearsal", PROFILE.format(about="[broken"))
    broken = edited.until(lambda state: state["problems"])
    assert "rehearsal.yaml" in broken["problems"][0]
    assert about(broken) == "after the edit"
    edited.write("rehearsal", PROFILE.format(about="mended"))
    mended = edited.until(lambda state: not state["problems"])
    assert about(mended) == "mended"

    now = mended["engines"]["rehearsal"]
    same = ("state", "container", "ready_at", "since", "fingerprint", "port")
    assert [now[key] for key in same] == [engine[key] for key in same]


def test_whoever_asks_is_told_the_file_as_it_is(edited: Any) -> None:
    """A question after an edit needs no look in between."""
    edited.write("second", PROFILE.format(about="new").replace("rehearsal", "second"))
    assert "second" in [model["id"] for model in edited.get("/v1/models")["data"]]
    edited.write("rehearsal", PROFILE.format(about="asked for"))
    assert about(edited.get("/api/profiles")) == "asked for"
