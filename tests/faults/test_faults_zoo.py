"""Engines that misbehave, by name: each ends in its own state with its message, and nothing of it is left running."""

from typing import Any

import pytest

from sparkdash.supervisor import repair
from sparkdash.supervisor.decide.judge import Thresholds

ZOO = [
    # animal -> code, words of the message, is it parked at once?
    ("out-of-memory", "out_of_memory", "Tried to allocate 20.00 GiB", False),
    ("unknown-flag", "unknown_flag", "--speculative-model", True),
    ("no-words", "engine_crash", "code 3", False),
    ("killed", "out_of_memory", "SIGKILL", False),
    ("never-ready", "no_progress", "made no progress", False),
    ("unwell", "no_progress", "made no progress", False),
    ("hangs-up", "no_progress", "made no progress", False),
    ("lies-about-health", "bad_answer", "its answer was empty", False),
]


@pytest.mark.parametrize(("animal", "code", "words", "parked"), ZOO, ids=[each[0] for each in ZOO])
async def test_an_engine_that_does_not_come_up(open_box: Any, animal: str, code: str, words: str, parked: bool) -> None:
    """The client gets the reason, nothing is left; what no try can fix is parked at once."""
    patience = {"no_progress_s": 20} if code == "no_progress" else {}
    async with open_box(f"bad {animal}", **patience) as box:
        status, error = await box.chat("bad")
        assert (status, error["code"]) == (400, code)
        assert words in error["message"]
        assert box.left() == set()
        assert set(box.bus.snapshot.parked) == ({"bad"} if parked else set())


@pytest.mark.parametrize("animal", ["", "slow", "wont-stop", "forks-orphans"])
async def test_an_engine_that_serves_is_gone_when_it_is_stopped(open_box: Any, animal: str) -> None:
    """One that ignores SIGTERM, and one whose worker opened a session of its own and ignores it too."""
    async with open_box(f"a {animal}", "b") as box:
        assert await box.chat("a") == (200, {})
        assert await box.chat("b") == (200, {})
        assert box.left() == {"sparkdash-b"}
        assert ("orphan_ended" in box.notices()) is (animal == "forks-orphans")


async def test_an_engine_that_dies_while_it_serves(open_box: Any) -> None:
    """The engine comes up, answers its warm-up and is gone: told with its last words."""
    async with open_box("a dies-at-first-request") as box:
        await box.use("a")
        await box.until(lambda: box.states() == {"a": "failed"})
        failure = box.bus.snapshot.engines["a"].failure
        assert failure.code == "engine_crash"
        assert "KeyError" in failure.message
        assert box.left() == set()


async def test_an_engine_that_freezes_is_ended_and_its_request_replayed_once(
    open_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine answers its warm-up and stops itself at each first request: told once it was stuck twice."""
    monkeypatch.setattr(repair, "LOOK_S", 100.0)  # a look takes as long as ever, on a clock that is fast
    quick = Thresholds(slow_s=2, stopped_s=6, gap_s=300)
    async with open_box("a freezes", thresholds=quick) as box:
        status, error = await box.chat("a")
        assert (status, error["code"]) == (502, "engine_stuck")
        assert "its processes are stopped" in error["message"]
        await box.until(lambda: all(each.end for each in box.bus.snapshot.incidents))
        assert [each.end for each in box.bus.snapshot.incidents] == ["failed", "restarted"]
        assert set(box.bus.snapshot.parked) == {"a"}
        assert box.left() == set()
