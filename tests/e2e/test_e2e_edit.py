"""Editing a profile file while its engine runs."""

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

PROFILE = "profile: rehearsal\nabout: {about}\nengine: sim\nsim: {{load_s: 1, memory_gib: 0.1, time_scale: 20}}\n"


@pytest.fixture(scope="module")
def edited(new_daemon: Callable[..., Any]) -> Iterator[Any]:
    """A daemon whose one simulated engine is ready."""
    daemon = new_daemon(runtime="process", reserve_gib=0)
    daemon.write("rehearsal", PROFILE.format(about="before"))
    daemon.start()
    assert daemon.sparkdash("use", "rehearsal", "--yes").returncode == 0
    yield daemon
    daemon.end()


def about(state: dict[str, Any]) -> str:
    """The profile's `about` in the catalog."""
    return str(next(p["about"] for p in state["profiles"] if p["name"] == "rehearsal"))


def test_an_edit_is_seen_on_the_feed_and_leaves_the_engine_alone(edited: Any) -> None:
    engine = edited.state()["engines"]["rehearsal"]
    assert engine["state"] == "ready"

    edited.write("rehearsal", PROFILE.format(about="after the edit"))
    edited.until(lambda state: about(state) == "after the edit")
    edited.write("rehearsal", PROFILE.format(about="[broken"))
    broken = edited.until(lambda state: state["problems"])
    assert "rehearsal.yaml" in broken["problems"][0]
    assert about(broken) == "after the edit"
    edited.write("rehearsal", PROFILE.format(about="fixed"))
    fixed = edited.until(lambda state: not state["problems"])
    assert about(fixed) == "fixed"

    now = fixed["engines"]["rehearsal"]
    same = ("state", "container", "ready_at", "since", "fingerprint", "port")
    assert [now[key] for key in same] == [engine[key] for key in same]


@pytest.mark.full
def test_an_edit_of_the_settings_holds_at_once_or_says_that_it_waits(edited: Any) -> None:
    engine, now = edited.state()["engines"]["rehearsal"], "reserve_gib = 3\nguard_kill_gib = 0.25\nbody_s = 10"
    before = edited.configure(lambda text: text.replace("reserve_gib = 0", now))
    told = edited.until(lambda state: "restart_needed" in codes(state))
    assert told["guard"]["floors"]["kill"] == 1 << 28
    texts = {notice["code"]: notice["text"] for notice in told["notices"]}
    assert texts["settings_read"].endswith("apply now: reserve_gib, guard_kill_gib.")
    assert texts["restart_needed"].endswith("edited: body_s will apply after a restart of the daemon.")
    edited.until(lambda state: state["sample"]["memory"]["reserve"] == 3 << 30)
    edited.configure(lambda _: before + "reserve_gip = 1\n")
    assert "settings_invalid" in codes(edited.until(lambda state: "settings_invalid" in codes(state)))
    assert edited.get("/api/plan/rehearsal")["reserve_bytes"] == 3 << 30
    assert edited.state()["engines"]["rehearsal"] == engine
    edited.configure(lambda _: before)


def codes(state: dict[str, Any]) -> list[str]:
    return [notice["code"] for notice in state["notices"]]


@pytest.mark.full
def test_whoever_asks_is_told_the_file_as_it_is(edited: Any) -> None:
    edited.write("third", PROFILE.format(about="new").replace("rehearsal", "third"))
    assert '"third"' in edited.sparkdash("profiles", "--json").stdout
    edited.write("second", PROFILE.format(about="new").replace("rehearsal", "second"))
    assert "second" in [model["id"] for model in edited.get("/v1/models")["data"]]
    edited.write("rehearsal", PROFILE.format(about="asked for"))
    assert about(edited.get("/api/profiles")) == "asked for"


def test_sighup_reads_the_files_again_and_the_daemon_serves_on(edited: Any) -> None:
    engine = edited.state()["engines"]["rehearsal"]
    edited.write("second", PROFILE.format(about="new").replace("rehearsal", "second"))
    edited.process.send_signal(signal.SIGHUP)
    edited.until(lambda state: any(profile["name"] == "second" for profile in state["profiles"]))
    assert edited.process.poll() is None
    assert edited.state()["engines"]["rehearsal"]["since"] == engine["since"]
