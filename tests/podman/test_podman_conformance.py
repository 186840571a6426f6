"""Behaviour that every runtime shares: the same tests on real podman and on plain processes."""

import asyncio
import contextlib
import os
import signal
import time
from typing import Any

import psutil
import pytest

from sparkdash.domain.container import ENV_MARK, LABEL_OWNER, LABEL_PROFILE, ContainerState, engine_mark
from sparkdash.errors import HostError

STAY = "sleep 300 & wait"
"""A shell that can hear signals while it waits."""


async def heard(ground: Any, name: str, *, follow: bool = False, tail: int | None = None) -> list[str]:
    return [line async for line in ground.runtime.logs(name, follow=follow, tail=tail)]


async def until(ground: Any, name: str, line: str) -> None:
    log = ground.runtime.logs(name, follow=True)
    async for each in log:
        if each == line:
            break
    await log.aclose()


async def test_a_life(ground: Any) -> None:
    """Started, seen, stopped, gone; stopping twice is fine."""
    runtime, spec = ground.runtime, ground.spec(STAY)
    begin = time.time()
    info = await runtime.start(spec)
    assert (info.name, info.state, info.exit_code) == (spec.name, ContainerState.RUNNING, None)
    assert begin - 1 <= info.started_at <= time.time() + 1
    assert spec.labels.items() <= info.labels.items()
    assert info.pid in await runtime.pids(spec.name)
    seen = await runtime.inspect(spec.name)
    assert (seen.id, seen.name, seen.state, seen.pid) == (info.id, info.name, info.state, info.pid)
    await runtime.stop(spec.name, grace_s=0)
    assert await runtime.inspect(spec.name) is None
    assert await runtime.pids(spec.name) == set()
    await runtime.stop(spec.name, grace_s=0)


async def test_the_exit_code(ground: Any) -> None:
    """A program's own exit code, while it is waited for and after."""
    spec = ground.spec("echo dying; exit 7")
    await ground.runtime.start(spec)
    assert await ground.runtime.wait(spec.name) == 7
    assert await ground.runtime.wait(spec.name) == 7
    info = await ground.runtime.inspect(spec.name)
    assert (info.state, info.exit_code, info.pid) == (ContainerState.EXITED, 7, None)
    assert await ground.runtime.pids(spec.name) == set()
    assert await heard(ground, spec.name) == ["dying"]


async def test_waiting_for_one_that_is_killed(ground: Any) -> None:
    """An engine killed from outside: the waiter gets 137 and a follower's log ends."""
    spec = ground.spec(f"echo up; {STAY}")
    info = await ground.runtime.start(spec)
    await until(ground, spec.name, "up")
    waiter = asyncio.ensure_future(ground.runtime.wait(spec.name))
    follower = asyncio.ensure_future(heard(ground, spec.name, follow=True))
    os.kill(info.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        assert await waiter == 137
        assert await follower == ["up"]


async def test_logs_hold_both_streams_whatever_is_written(ground: Any) -> None:
    """Standard error, progress bars, bytes that are no text, and a line of 20 kB.

    The long line waits for the log to have the error: podman keeps such a line in pieces, and an error that comes
    between two of them is printed within it.
    """
    gate = ground.gate("gate")
    spec = ground.spec(
        f"echo out; echo err >&2; read x < {gate}; "
        "printf '\\r1%%\\r2%%\\n'; printf '\\377 bad\\n'; head -c 20000 /dev/zero | tr '\\0' x; echo"
    )
    await ground.runtime.start(spec)
    lines: list[str] = []
    async with asyncio.timeout(60):
        while len(lines) < 2:
            lines = await heard(ground, spec.name)
        assert sorted(lines) == ["err", "out"]  # the order between the two streams is nobody's to keep
        await asyncio.to_thread(gate.write_text, "go\n")
        await ground.runtime.wait(spec.name)
        while len(lines) < 6:  # the container's end may be told before its last words are in the log
            lines = await heard(ground, spec.name)
    assert lines[2:5] == ["1%", "2%", "\ufffd bad"]
    assert lines[5].startswith("xxx")
    assert len(lines[5]) < 10_000
    assert len(lines) == 6


async def test_the_tail_of_a_log(ground: Any) -> None:
    """Only the last lines; more than there are gives all; none gives none."""
    spec = ground.spec("for i in 1 2 3 4 5 6; do echo $i; done")
    await ground.runtime.start(spec)
    await ground.runtime.wait(spec.name)
    assert await heard(ground, spec.name, tail=2) == ["5", "6"]
    assert await heard(ground, spec.name, tail=99) == ["1", "2", "3", "4", "5", "6"]
    assert await heard(ground, spec.name, tail=0) == []


async def test_following_a_log(ground: Any) -> None:
    """Lines come while the program runs, and the log ends with the program."""
    gate = ground.gate("gate")
    spec = ground.spec(f"echo one; read x < {gate}; echo two")
    await ground.runtime.start(spec)
    log = ground.runtime.logs(spec.name, follow=True)
    async with asyncio.timeout(60):
        assert await anext(log) == "one"
        await asyncio.to_thread(gate.write_text, "go\n")
        assert [line async for line in log] == ["two"]


async def test_a_line_written_in_two_pieces_keeps_its_end(ground: Any) -> None:
    """Also when the program ends right after it, and with a last line that is never ended."""
    gate = ground.gate("pieces")
    spec = ground.spec(f"printf 'one, '; read x < {gate}; printf 'two\\n'; printf 'no end'")
    await ground.runtime.start(spec)
    follower = asyncio.ensure_future(heard(ground, spec.name, follow=True))
    async with asyncio.timeout(60):
        await asyncio.to_thread(gate.write_text, "go\n")
        assert await follower == ["one, two", "no end"]


async def test_a_program_that_ignores_sigterm(ground: Any) -> None:
    """The program gets its grace, and is gone after it, with the child that ignores it too."""
    spec = ground.spec("trap '' TERM; sleep 60 & echo up; wait")
    await ground.runtime.start(spec)
    await until(ground, spec.name, "up")
    pids = await ground.runtime.pids(spec.name)
    assert len(pids) == 2
    begin = time.monotonic()
    await ground.runtime.stop(spec.name, grace_s=1)
    assert time.monotonic() - begin >= 1
    assert await ground.runtime.inspect(spec.name) is None
    assert not [pid for pid in pids if _runs(pid)]


@pytest.mark.parametrize(("signal", "named"), [("TERM", {}), ("INT", {"stop_signal": "SIGINT"})])
async def test_a_program_ends_by_itself_at_its_signal(ground: Any, signal: str, named: dict[str, str]) -> None:
    """Before its grace is over; SIGTERM where its spec names no other."""
    said = ground.folder / "said"
    spec = ground.spec(f"trap '' TERM; trap 'echo bye > {said}; exit 0' {signal}; echo up; {STAY}", **named)
    await ground.runtime.start(spec)
    await until(ground, spec.name, "up")
    begin = time.monotonic()
    await ground.again().stop(spec.name, grace_s=60)
    assert time.monotonic() - begin < 60
    assert said.read_text() == "bye\n"


async def test_a_later_daemon_adopts(ground: Any) -> None:
    """A fresh runtime finds containers by their labels, reads their logs and ends them; others' stay out."""
    await ground.runtime.start(ground.spec(f"echo up; {STAY}", name="a"))
    await ground.runtime.start(ground.spec("exit 3", name="b"))
    await ground.runtime.wait(ground.spec("", name="b").name)
    later = ground.again()
    found = {info.labels[LABEL_PROFILE]: info for info in await later.containers({LABEL_OWNER: ground.owner})}
    assert {name: info.state.value for name, info in found.items()} == {"a": "running", "b": "exited"}
    assert found["b"].exit_code == 3
    assert len(await later.containers({LABEL_OWNER: ground.owner, LABEL_PROFILE: ""})) == 2
    assert len(await later.containers({LABEL_OWNER: ground.owner, LABEL_PROFILE: "a"})) == 1
    assert await later.containers({LABEL_OWNER: "somebody-else"}) == []
    await later.stop(found["a"].name, grace_s=0)
    assert await ground.runtime.inspect(found["a"].name) is None


async def test_the_same_name_again_replaces(ground: Any) -> None:
    """A second start ends the first and forgets its log."""
    first = await ground.runtime.start(ground.spec(f"echo first; {STAY}"))
    spec = ground.spec(f"echo second; {STAY}")
    second = await ground.runtime.start(spec)
    assert second.id != first.id
    assert len(await ground.runtime.containers({LABEL_OWNER: ground.owner})) == 1
    await until(ground, spec.name, "second")
    assert not _runs(first.pid)


async def test_the_environment_and_the_exact_arguments(ground: Any) -> None:
    """Variables and arguments arrive as they were given, quotes, spaces and JSON included."""
    spec = ground.spec('echo "$GREETING"; printf "%s|" "$@"', env={"GREETING": "two words 'q'"})
    argv = (*spec.argv, "sh", '{"method": "eagle3"}', "", "--flag=a b")
    await ground.runtime.start(spec.model_copy(update={"argv": argv}))
    assert await ground.runtime.wait(spec.name) == 0
    assert await heard(ground, spec.name) == ["two words 'q'", '{"method": "eagle3"}||--flag=a b|']
    assert (await ground.runtime.command(spec))[-2:] == list(spec.argv[-2:])


async def test_a_program_that_is_not_there(ground: Any) -> None:
    """The error names the program; nothing is left behind."""
    spec = ground.spec("", argv=("/no/such/engine", "serve"))
    with pytest.raises(HostError, match="/no/such/engine") as caught:
        await ground.runtime.start(spec)
    assert caught.value.code == "command_missing"
    assert await ground.runtime.inspect(spec.name) is None


async def test_a_name_that_is_not_there(ground: Any) -> None:
    """Nothing to see, nothing to stop; a log that is asked for by name is an error."""
    runtime = ground.runtime
    assert await runtime.inspect("sparkdash-test-nobody") is None
    assert await runtime.pids("sparkdash-test-nobody") == set()
    assert await runtime.wait("sparkdash-test-nobody") == -1
    await runtime.stop("sparkdash-test-nobody", grace_s=1)
    with pytest.raises(HostError) as caught:
        await heard(ground, "sparkdash-test-nobody")
    assert caught.value.code == "no_such_container"


async def test_the_version(ground: Any) -> None:
    assert (await ground.runtime.version())[0].isdigit()


def _runs(pid: int) -> bool:
    """Whether the process has not ended. An ended orphan is listed until the box's first process notices."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False


async def test_what_outlives_the_engine_is_ended_and_told(ground: Any) -> None:
    """A worker of its own session whose parent is gone: a container takes it along, a process leaves it to us."""
    worker = "trap : TERM; echo ready; while :; do sleep 60; done"
    spec = ground.spec(f'setsid sh -c "{worker}" & {STAY}')
    spec = spec.model_copy(update={"env": {ENV_MARK: engine_mark(ground.owner, spec.name)}})
    await ground.runtime.start(spec)
    await until(ground, spec.name, "ready")
    running = await ground.again().pids(spec.name)
    assert len(running) >= 2
    left = await ground.again().stop(spec.name, grace_s=2)
    assert left.stuck == ()
    assert bool(left.ended) is (ground.image is None)
    assert not [pid for pid in running if _runs(pid)]
