"""The zoo in real podman containers: each animal ends in its state with its message, and nothing of it is left."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from signal import SIGKILL
from typing import Any

import pytest

from sparkdash.domain.container import ENV_MARK, LABEL_OWNER, engine_mark
from sparkdash.engines.argv import container_name
from sparkdash.host.podman.podman import Podman
from sparkdash.host.processes import leftovers
from sparkdash.host.processes.proc import host_bytes
from sparkdash.units import MIB

pytestmark = [pytest.mark.full, pytest.mark.podman]
KEPT = 64 * MIB
A, B, BAD = (f"faults-{name}-{os.getpid()}" for name in ("a", "b", "bad"))
"""The box has one name space of containers, and somebody else may run these tests on it."""


def held(pid: int) -> int:
    """Bytes that this process keeps in memory."""
    return host_bytes(pid) or 0


async def left(box: Any) -> set[str]:
    """Profiles of containers that are there, running or not, and marks of processes that live."""
    here = await Podman().containers({LABEL_OWNER: box.owner})
    return {info.name for info in here} | {m.partition("/")[2] for m in leftovers.processes_of_owner(box.owner)}


@pytest.mark.parametrize("animal", ["wont-stop", "forks-orphans"])
async def test_a_container_that_serves_is_gone_for_the_next(open_real_box: Any, animal: str) -> None:
    """One that ignores SIGTERM, and one whose worker opened a session of its own: the next engine runs alone."""
    async with open_real_box(f"{A} {animal}", B) as box:
        assert await box.chat(A) == (200, {})
        assert await box.chat(B) == (200, {})
        assert await left(box) == {f"sparkdash-{B}"}
        await box.supervisor.stop(None)
        assert await left(box) == set()


async def test_a_container_that_somebody_removes_is_told_as_that(open_real_box: Any) -> None:
    """`podman rm -f` kills as the kernel does for want of memory, and that is not what happened."""
    async with open_real_box(A) as box:
        await box.use(A)
        removing = await asyncio.create_subprocess_exec("podman", "rm", "-f", container_name(A), stdout=PIPE)
        async with asyncio.timeout(30):
            await box.until(lambda: box.states() == {A: "failed"})
        failure = box.bus.snapshot.engines[A].failure
        assert failure.code == "container_removed"
        assert "memory" not in failure.message + failure.hint
        assert await removing.wait() == 0
        assert await left(box) == set()


async def test_a_container_that_leaks_memory(open_real_box: Any) -> None:
    """The worker is nobody's child and keeps 64 MiB; its other process, out of podman's reach, keeps as much.

    The first goes with the container, the second is ended and named: the next engine finds the memory of neither taken.
    """
    async with open_real_box(f"{A} leaks-memory") as box:
        await box.use(A)
        engine = engine_mark(box.owner, container_name(A))
        inside = leftovers.processes_of_engine(engine)
        assert sorted(held(pid) >= KEPT for pid in inside) == [False, True]
        words = f"import signal, time; signal.signal(15, signal.SIG_IGN); kept = b'w' * {KEPT}; print(flush=True); time.sleep(600)"
        orphan = await asyncio.create_subprocess_exec(
            sys.executable, "-SEc", words, env={ENV_MARK: engine}, stdout=PIPE, start_new_session=True
        )
        assert orphan.stdout is not None
        await orphan.stdout.readline()
        assert held(orphan.pid) >= KEPT
        await box.supervisor.stop(None)
        assert await orphan.wait() == -SIGKILL
        (notice,) = (one for one in box.bus.snapshot.notices if one.code == "orphan_ended")
        assert notice.profile == A
        assert f"orphan pid {orphan.pid} behind; ended now" in notice.text
        assert await left(box) == set()
        assert leftovers.births(inside) == {}
