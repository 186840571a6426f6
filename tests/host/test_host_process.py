"""Plain processes: what the runtimes' common tests cannot see."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.container import ContainerSpec, ContainerState
from sparkdash.errors import HostError
from sparkdash.host import log_limit
from sparkdash.host.processes import proc
from sparkdash.host.processes.process import Process, ProcessRecord, ProcessRecords

STAY = "sleep 300 & wait"
START = """
import asyncio, os, signal, sys
from pathlib import Path
from sparkdash.domain.container import ContainerSpec
from sparkdash.host.processes.process import Process
spec = ContainerSpec(name="n", image=None, argv=("sh", "-c", sys.argv[2]), port=1, labels={"sparkdash.owner": "me"})
info = asyncio.run(Process(Path(sys.argv[1])).start(spec))
print(info.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""A daemon that starts an engine and is killed."""
FIRST_THREAD_ENDS = """
import ctypes, os, sys, threading
threading.Thread(target=lambda: (open(sys.argv[1]).read(), os._exit(9))).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def spec(script: str) -> ContainerSpec:
    return ContainerSpec(name="qwen3.5-a", image=None, argv=("sh", "-c", script), port=1)


def killed_daemon(folder: Path, script: str) -> int:
    """Let another process start `script` and die; the pid of what it started."""
    out = subprocess.run([sys.executable, "-c", START, folder, script], stdout=subprocess.PIPE, timeout=60, check=False)
    assert out.returncode == -signal.SIGKILL
    return int(out.stdout)


def runs(pid: int) -> bool:
    found = proc.stat(pid)
    return found is not None and not found.ended


def first_thread_ended(pid: int | None) -> bool:
    return " Z " in Path(f"/proc/{pid}/stat").read_text()


async def test_the_exit_code_of_another_daemons_child_is_unknown(tmp_path: Path) -> None:
    """Only a parent learns it: None when seen, -1 when waited for; the end itself is noticed."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    killed_daemon(tmp_path, f"read x < {gate}; exit 3")
    runtime = Process(tmp_path)
    waiter = asyncio.ensure_future(runtime.wait("n"))
    await asyncio.to_thread(gate.write_text, "go\n")
    async with asyncio.timeout(20):
        assert await waiter == -1
    info = await runtime.inspect("n")
    assert info is not None
    assert (info.state, info.exit_code) == (ContainerState.EXITED, None)
    await runtime.stop("n", grace_s=0)


async def test_workers_that_lost_their_leader_are_ended(tmp_path: Path) -> None:
    """An engine whose server died and whose worker lives on still holds memory: stop ends the worker."""
    runtime, script = Process(tmp_path), "(trap '' TERM; exec sleep 300) & echo $!; exit 1"
    await runtime.start(spec(script))
    assert await runtime.wait("qwen3.5-a") == 1
    (worker,) = [int(line) async for line in runtime.logs("qwen3.5-a", follow=False)]
    assert runs(worker)
    await runtime.stop("qwen3.5-a", grace_s=0)
    assert not runs(worker)


async def test_looking_for_processes_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a box with thousands of processes it takes a tenth of a second, and is asked every few seconds."""
    runtime = Process(tmp_path)
    info = await runtime.start(spec("sleep 300"))
    free, family = threading.Event(), proc.family
    monkeypatch.setattr(proc, "family", lambda leader: free.wait(5) and family(leader))
    asking = asyncio.ensure_future(runtime.pids("qwen3.5-a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    free.set()
    assert info.pid in await asking
    await runtime.stop("qwen3.5-a", grace_s=0)


async def test_an_engine_lives_until_its_last_thread_has_ended(tmp_path: Path) -> None:
    """SIGKILL often ends the first thread first: memory of the others is not free yet, and there is no exit code."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    runtime = Process(tmp_path)
    argv = (sys.executable, "-S", "-c", FIRST_THREAD_ENDS, str(gate))
    info = await runtime.start(spec("").model_copy(update={"argv": argv}))
    while not first_thread_ended(info.pid):  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(0.01)
    assert await runtime.inspect("qwen3.5-a") == info
    assert info.pid in await runtime.pids("qwen3.5-a")
    waiter = asyncio.ensure_future(runtime.wait("qwen3.5-a"))
    await asyncio.to_thread(gate.write_text, "go")
    assert await waiter == 9


@pytest.mark.parametrize(("boot", "earlier"), [(None, 1), ("another-boot", 0)])
async def test_a_stranger_with_the_pid_is_left_alone(tmp_path: Path, boot: str | None, earlier: int) -> None:
    """A record whose pid is of a process born at another time, or after a restart of the box: stop touches nobody."""
    runtime, records = Process(tmp_path), ProcessRecords(tmp_path)
    stranger = await runtime.start(spec(STAY))
    now = records.get("qwen3.5-a")
    assert now is not None
    assert stranger.pid is not None
    own_boot, _, ticks = now.birth.rpartition(":")
    records.put(now.model_copy(update={"birth": f"{boot or own_boot}:{int(ticks) - earlier}"}))
    assert await runtime.pids("qwen3.5-a") == set()
    info = await runtime.inspect("qwen3.5-a")
    assert info is not None
    assert (info.state, info.exit_code) == (ContainerState.EXITED, None)
    await runtime.stop("qwen3.5-a", grace_s=0)
    assert runs(stranger.pid)
    records.put(now)
    await runtime.stop("qwen3.5-a", grace_s=0)
    assert not runs(stranger.pid)


async def test_a_damaged_record_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "n.json").write_text("{half")
    assert await Process(tmp_path).containers({}) == []
    assert await Process(tmp_path).inspect("n") is None


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden"])
async def test_names_are_no_paths(tmp_path: Path, name: str) -> None:
    with pytest.raises(HostError) as caught:
        await Process(tmp_path).inspect(name)
    assert caught.value.code == "bad_name"


async def test_records_and_logs_are_the_owners_alone(tmp_path: Path) -> None:
    runtime = Process(tmp_path / "new")
    await runtime.start(spec("exit 0"))
    await runtime.wait("qwen3.5-a")
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "new").iterdir()}
    assert modes == {"qwen3.5-a.json": 0o600, "qwen3.5-a.log": 0o600}


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="file/processes") as caught:
        await Process(tmp_path / "file/processes").start(spec("exit 0"))
    assert caught.value.code == "state_unwritable"


async def test_an_engine_that_cannot_be_written_down_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: nobody would find it again, and it holds memory. Once there is room all is well."""
    runtime, begun = Process(tmp_path), list[int]()
    write = Path.write_text

    def full(_: Path, text: str) -> int:
        begun.append(ProcessRecord.model_validate_json(text).pid)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(HostError, match="No space left on device") as caught:
        await runtime.start(spec(STAY))
    assert caught.value.code == "disk_full"
    assert [runs(pid) for pid in begun] == [False]
    assert ProcessRecords(tmp_path).all() == []
    monkeypatch.setattr(Path, "write_text", write)
    info = await runtime.start(spec("exit 3"))
    monkeypatch.setattr(Path, "write_text", full)
    assert await runtime.wait(info.name) == 3
    assert [each.state for each in await runtime.containers({})] == [ContainerState.EXITED]
    await runtime.stop(info.name, 0)


async def test_a_log_that_was_taken_away_is_told(tmp_path: Path) -> None:
    runtime = Process(tmp_path)
    info = await runtime.start(spec("exit 0"))
    await runtime.wait(info.name)
    ProcessRecords(tmp_path).log(info.name).unlink()
    with pytest.raises(HostError, match="cannot be read: No such file"):
        [line async for line in runtime.logs(info.name, follow=False, tail=5)]
    await runtime.stop(info.name, 0)


async def test_the_tail_of_a_log_whose_last_line_is_open(tmp_path: Path) -> None:
    runtime = Process(tmp_path)
    await runtime.start(spec("seq 1 30000; printf end"))
    await runtime.wait("qwen3.5-a")
    tails = {n: [line async for line in runtime.logs("qwen3.5-a", follow=False, tail=n)] for n in (0, 1, 2)}
    assert tails == {0: [], 1: ["end"], 2: ["30000", "end"]}
    whole = [line async for line in runtime.logs("qwen3.5-a", follow=False, tail=99999)]
    assert len(whole) == 30001


async def test_a_log_keeps_its_limit_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that was written goes; who writes it and who follows it go on."""
    monkeypatch.setattr(log_limit, "LIMIT", 512 * 1024)
    runtime, go, more = Process(tmp_path / "runtime"), tmp_path / "go", tmp_path / "more"
    for fifo in (go, more):
        os.mkfifo(fifo)
    await runtime.start(spec(f"seq 1 200000; read x <{go}; echo after; read x <{more}; echo last"))
    log, seen = runtime.logs("qwen3.5-a", follow=True), []
    async with asyncio.timeout(60):
        async for line in log:
            seen.append(line)
            if line == "200000":
                break
        (file,) = runtime.log_files()
        log_limit.limit_log(file)
        assert [line async for line in runtime.logs("qwen3.5-a", follow=False, tail=2)] == []
        go.write_text("\n")
        assert await anext(log) == "after"
        more.write_text("\n")
        assert [line async for line in log] == ["last"]
    assert seen == [str(n) for n in range(1, 200_001)]
    await runtime.stop("qwen3.5-a", 0)


async def test_a_small_log_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log_limit.limit_log(log)
    log.write_text("a line\n")
    log_limit.limit_log(log)
    assert log.read_text() == "a line\n"


async def test_pulling_is_done_at_once(tmp_path: Path) -> None:
    assert [step.done async for step in Process(tmp_path).pull("i:1")] == [True]
    assert await Process(tmp_path).image_id("i:1") == ""


@pytest.mark.parametrize("wrong", [{"argv": ("sleep", "a\0b")}, {"env": {"A=B": "c"}}])
async def test_what_no_program_can_be_given_is_told(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """A NUL in a word or a variable named with "=" is a mistake in a profile, and no more."""
    with pytest.raises(HostError) as caught:
        await Process(tmp_path).start(spec(STAY).model_copy(update=wrong))
    assert caught.value.code == "command_missing"


async def test_a_program_that_is_not_there_is_told_before_the_start(tmp_path: Path) -> None:
    runtime = Process(tmp_path)
    await runtime.check_start(spec(STAY))
    with pytest.raises(HostError, match="no-such-engine: No such file") as caught:
        await runtime.check_start(spec(STAY).replace(argv=("no-such-engine", "serve")))
    assert caught.value.code == "command_missing"
