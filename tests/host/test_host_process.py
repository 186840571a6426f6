"""Plain processes: what the runtimes' common tests cannot see; and their activity, as the kernel tells it."""

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from sparkdash.domain.container import ContainerSpec, ContainerState
from sparkdash.errors import HostError
from sparkdash.host import log_limit
from sparkdash.host.processes import activity, proc
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
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    killed_daemon(tmp_path, f"read x < {gate}; exit 3")
    runtime = Process(tmp_path)
    waiter = asyncio.ensure_future(runtime.wait("n"))
    await asyncio.to_thread(gate.write_text, "go\n")
    async with asyncio.timeout(20):
        assert await waiter == -1
    info = await runtime.inspect("n")
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
    runtime, records = Process(tmp_path), ProcessRecords(tmp_path)
    stranger = await runtime.start(spec(STAY))
    now = records.get("qwen3.5-a")
    assert stranger.pid is not None
    own_boot, _, ticks = now.birth.rpartition(":")
    records.put(now.model_copy(update={"birth": f"{boot or own_boot}:{int(ticks) - earlier}"}))
    assert await runtime.pids("qwen3.5-a") == set()
    info = await runtime.inspect("qwen3.5-a")
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
    with refused("bad_name"):
        await Process(tmp_path).inspect(name)


async def test_records_and_logs_are_the_owners_alone(tmp_path: Path) -> None:
    runtime = Process(tmp_path / "new")
    await runtime.start(spec("exit 0"))
    await runtime.wait("qwen3.5-a")
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "new").iterdir()}
    assert modes == {"qwen3.5-a.json": 0o600, "qwen3.5-a.log": 0o600}


async def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused("state_unwritable", "file/processes"):
        await Process(tmp_path / "file/processes").start(spec("exit 0"))


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
    with refused("disk_full", "No space left on device"):
        await runtime.start(spec(STAY))
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
    with refused("command_missing"):
        await Process(tmp_path).start(spec(STAY).model_copy(update=wrong))


async def test_a_program_that_is_not_there_is_told_before_the_start(tmp_path: Path) -> None:
    runtime = Process(tmp_path)
    await runtime.check_start(spec(STAY))
    with refused("command_missing", "no-such-engine: No such file"):
        await runtime.check_start(spec(STAY).replace(argv=("no-such-engine", "serve")))


VLLM = b"4711 (VLLM::EngineCor) R 1 4711 4711 0 -1 4194304 9 8 7 6 1500 250 30 20 20 0 131 0 99 1 2 3\n"


COMPILERS = (
    "ptxas", "ptxas-blackwell", "nvcc", "cicc", "cudafe++", "ninja", "cc1plus", "g++", "gcc-13", "aarch64-linux-g",
    "clang-18", "ld.lld",
)  # fmt: skip
OTHERS = ("python3", "VLLM::EngineCor", "llama-server", "asyncio", "ld-linux-aarch6", "cuda-EvtHandlr")


@pytest.mark.parametrize("name", COMPILERS + OTHERS)
def test_compilers_are_known_by_name(name: str) -> None:
    """The kernel keeps 15 characters of a name."""
    assert activity.is_compiler(name) is (name in COMPILERS)


def until(holds: Callable[[], object], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.01)


def test_processes_that_work_use_time_and_those_that_are_stopped_are_named(new_child: Any) -> None:
    busy = new_child(sys.executable, "-c", "while True: pass", says=False)
    sleeper = new_child("sleep", "600", says=False)
    pids = {busy.pid, sleeper.pid}
    until(lambda: (seen := activity.read_activity(pids)) and seen.cpu_s > 0.2)
    before = activity.read_activity(pids)
    assert (before.processes, before.stopped, before.compilers) == (2, (), ())
    os.kill(busy.pid, signal.SIGSTOP)
    until(lambda: (seen := activity.read_activity(pids)) and seen.stopped)
    stopped = activity.read_activity(pids)
    assert len(stopped.stopped) == 1
    assert stopped.cpu_s >= before.cpu_s
    os.kill(busy.pid, signal.SIGCONT)
    until(lambda: (seen := activity.read_activity(pids)) and not seen.stopped)


def test_the_time_of_a_child_that_ended_stays(new_child: Any) -> None:
    """A compiler that has ended must not make the sum fall."""
    code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'sum(range(10**7))'])\nprint('done', flush=True)\ninput()"
    parent = new_child(sys.executable, "-c", code, stdin=subprocess.PIPE)
    assert activity.read_activity([parent.pid]).cpu_s >= 0.1


def test_a_compiler_among_them_is_named(new_child: Any, tmp_path: Path) -> None:
    program = tmp_path / "ptxas"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    seen = activity.read_activity([new_child(str(program), "600", says=False).pid, os.getpid()])
    assert seen.compilers == ("ptxas",)


def test_processes_that_are_gone_are_nothing(new_child: Any) -> None:
    gone = new_child("true", says=False)
    gone.wait()
    assert activity.read_activity([gone.pid]) is None
    assert activity.read_activity([gone.pid, os.getpid()]).processes == 1


def proc_of(folder: Path, told: bytes) -> Path:
    process = folder / "proc" / "7"
    process.mkdir(parents=True)
    (process / "stat").write_bytes(told)
    (process / "io").write_text("rchar: 9\nread_bytes: 4096\nwrite_bytes: 1\n")
    return folder / "proc"


def test_a_process_that_a_signal_stopped_is_named(tmp_path: Path) -> None:
    proc = proc_of(tmp_path, VLLM.replace(b"(VLLM::EngineCor) R", b"(a) (b)\x1b[2J\n\xff R c) T"))
    seen = activity.read_activity([7], proc)
    assert (seen.stopped, seen.read_bytes) == (("a) (b)\\u001b[2J\\u000a\ufffd R c",), 4096)
    assert seen.cpu_s == 1800 / os.sysconf("SC_CLK_TCK")


def test_processes_that_wait_in_the_kernel_are_counted(tmp_path: Path) -> None:
    proc = proc_of(tmp_path, VLLM.replace(b") R ", b") D "))
    (proc / "7" / "io").unlink()
    seen = activity.read_activity([7], proc)
    assert (seen.in_kernel, seen.read_bytes) == (1, None)
