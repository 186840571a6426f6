"""The memory guard's kill on every runtime, without a word to it."""

from __future__ import annotations

from typing import Any

import pytest

from sparkdash.host.memory.guard import KillTarget

pytestmark = pytest.mark.full


async def test_a_kill_ends_an_engine_and_what_it_forked(ground: Any) -> None:
    """The runtime sees it ended by SIGKILL, and none of its processes is left; one of them had left its session.

    The leader does not wait for its child: it would end by itself, well, when the child goes first.
    """
    up = ground.gate("up")
    child = f"setsid sh -c 'echo up > {up}; exec sleep 600'"
    spec = ground.spec(f"{child} & exec sleep 600")
    container = await ground.runtime.start(spec)
    with up.open() as gate:
        assert gate.readline() == "up\n"
    pids = await ground.runtime.pids(spec.name)
    assert len(pids) >= 2
    target = KillTarget.of(container)
    assert target is not None
    assert target.kill() >= 2
    assert await ground.runtime.wait(spec.name) == 137
    assert await ground.runtime.pids(spec.name) == set()
    assert not target.alive
    target.close()
