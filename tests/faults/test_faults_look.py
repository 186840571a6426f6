"""Podman fails while a daemon looks for what an earlier one left, and while it watches what runs; see test_faults_start."""

from typing import Any

import pytest

from sparkdash.domain.profile import MemoryNeed

SMALL = MemoryNeed(weights_gib=1, kv_gib=0, overhead_gib=0, source="test")

LOOKS = [
    # verb that fails while the next daemon looks for what runs -> is `a` adopted at once, what is told
    ("ps", "hang", False, ["runtime_timeout"]),
    ("ps", "125\nError: cannot connect", False, ["runtime_failed"]),
    ("ps", "127", False, ["runtime_failed"]),
    ("ps", "missing", False, ["runtime_missing"]),
    ("inspect", "hang", False, ["runtime_timeout"]),
    ("inspect", "garbage", False, ["runtime_failed"]),
    ("logs", "hang", True, []),
    ("wait", "killed", True, []),
]


@pytest.mark.parametrize(
    ("verb", "how", "adopted", "told"), LOOKS, ids=[f"{c[0]}-{c[1].splitlines()[0]}" for c in LOOKS]
)
async def test_podman_fails_while_a_daemon_looks_for_engines(
    open_box: Any, verb: str, how: str, adopted: bool, told: list[str]
) -> None:
    """The daemon serves all the same, says what it could not see, and adopts the engine when podman is well again."""
    async with open_box("a") as box:
        assert await box.chat("a") == (200, {})
    box.fault(verb, how)
    async with open_box("a") as box:
        assert (box.running() == ["a"]) is adopted
        assert box.notices() == told
        box.fix()
        await box.until(lambda: box.running() == ["a"])
        assert await box.chat("a") == (200, {})
        assert len([call for call in box.calls() if call.startswith("run")]) == 1
        await box.supervisor.stop(None)
        assert box.left() == set()


async def test_a_list_that_came_back_empty_costs_no_engine_its_processes(open_box: Any) -> None:
    """Podman lost its output: nothing is adopted, nothing is taken for an orphan, and a start replaces what is there."""
    async with open_box("a", memory=SMALL) as box:
        assert await box.chat("a") == (200, {})
    box.fault("ps", "silent")
    async with open_box("a", memory=SMALL) as box:
        assert (box.running(), box.notices()) == ([], [])
        assert box.left() == {"sparkdash-a"}
        assert await box.chat("a") == (200, {})
        await box.supervisor.stop(None)
        assert box.left() == set()


@pytest.mark.parametrize("how", ["125", "garbage", "killed", "missing"])
async def test_a_death_is_seen_though_podman_failed_meanwhile(open_box: Any, how: str) -> None:
    """`podman wait` is asked again: what it did not tell is no death, and a death is told once it can."""
    async with open_box("a dies-at-first-request") as box:
        box.fault("wait", how)
        await box.use("a")
        box.fix()
        await box.until(lambda: box.states() == {"a": "failed"})
        assert box.left() == set()
