"""Podman fails while an engine is stopped for another, at each verb and in each way; see test_faults_start."""

from typing import Any

import pytest

pytestmark = pytest.mark.full

SERVED = None

STOPS = [
    # verb that fails while `a` is stopped for `b` -> what a client of b gets, and the state of a
    ("stop", "hang", SERVED, None),
    ("stop", "125\nError: given PID did not die within timeout", SERVED, None),
    ("stop", "killed", SERVED, None),
    ("stop", "silent", SERVED, None),
    ("rm", "hang", "runtime_timeout", "failed"),
    ("rm", "125\nError: cannot remove container as it could not be stopped", "runtime_failed", "failed"),
    ("rm", "killed", "runtime_killed", "failed"),
    ("rm", "silent", SERVED, None),
    ("image", "hang", "runtime_timeout", "ready"),
    ("image", "125", "runtime_failed", "ready"),
    ("image", "killed", "runtime_killed", "ready"),
    ("image", "missing", "runtime_missing", "ready"),
]


@pytest.mark.parametrize(
    ("verb", "how", "code", "state"), STOPS, ids=[f"{c[0]}-{c[1].splitlines()[0]}-{c[2] or 'served'}" for c in STOPS]
)
async def test_podman_fails_while_an_engine_is_stopped(
    open_box: Any, verb: str, how: str, code: str | None, state: str | None
) -> None:
    """A stop that fails is followed by force; what cannot be removed is told and in the way, and nothing starts beside it.

    A failure that can be known before costs nobody an engine.
    """
    async with open_box("a", "b") as box:
        assert await box.chat("a") == (200, {})
        box.fault(verb, how)
        status, error = await box.chat("b")
        if code is SERVED:
            assert status == 200
            assert box.running() == ["b"]
        else:
            assert (status, error["code"]) == (400, code)
            assert box.states() == {"a": state, "b": "failed"}
            assert not any(call.startswith("run") and "sparkdash-b" in call for call in box.calls())
        box.fix()
        await box.use("b")
        assert box.running() == ["b"]
        assert box.left() == {"sparkdash-b"}
        await box.supervisor.stop(None)
        assert box.left() == set()


@pytest.mark.parametrize("how", ["hang", "125\nError: timed out waiting for file"], ids=["hang", "125"])
async def test_an_engine_whose_container_podman_neither_stops_nor_removes_is_killed_without_it(
    open_box: Any, how: str
) -> None:
    """The processes are gone, so the next engine may come; the container that is still listed is told."""
    async with open_box("a", "b") as box:
        assert await box.chat("a") == (200, {})
        for verb in ("stop", "rm"):
            box.fault(verb, how)
        assert (await box.chat("b"))[0] == 200
        assert box.running() == ["b"]
        assert any("its container is still listed" in notice.text for notice in box.bus.snapshot.notices)
        box.fix()
        await box.use("a")
        assert box.running() == ["a"]
        await box.supervisor.stop(None)
        assert box.left() == set()


async def test_where_podman_hangs_in_all_but_starting_the_engine_stays_and_the_next_one_fails_with_the_reason(
    open_box: Any,
) -> None:
    """Nothing can be told of the next engine, so nobody is stopped for it."""
    async with open_box("a", "b") as box:
        assert await box.chat("a") == (200, {})
        for verb in ("stop", "rm", "logs", "top", "inspect"):
            box.fault(verb, "hang")
        status, error = await box.chat("b")
        assert (status, error["code"]) == (400, "runtime_timeout")
        assert box.states() == {"a": "ready", "b": "failed"}
        box.fix()
        await box.use("b")
        assert box.running() == ["b"]
