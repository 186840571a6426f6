"""Evidence of an engine that hangs, taken of real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.evidence import Evidence, EvidenceRequest
from sparkdash.domain.profile import EngineKind
from sparkdash.host.box import BoxReader
from sparkdash.host.evidence import EvidenceTaker, incident_folder, taker
from sparkdash.host.kernel_log.reader import KernelLog
from sparkdash.host.processes import proc

TOKEN = "hf_notarealtokenbutlongenough"
PROMPT = "my most secret prompt"
Take = Callable[..., Any]


async def metrics(url: str) -> bytes:
    """An engine that answers, whatever else it does."""
    if url.endswith("/slots"):
        return json.dumps(
            [{"id": 0, "is_processing": True, "prompt": PROMPT, "next_token": [{"n_decoded": 7}]}]
        ).encode()
    return b"vllm:num_requests_running 2.0\n"


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "incidents"


@pytest.fixture
def tools_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder alone on PATH, with the shell's own; no py-spy of this box is found."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


@pytest.fixture
def take(parent: Path, tools_folder: Path, gb10_proc: Path, monkeypatch: pytest.MonkeyPatch) -> Take:
    """Take evidence of these pids; the rest of the request as given."""
    monkeypatch.setattr(taker, "SPAN_S", 0.1)
    for name in ("PROCESSES_S", "ARGV_S", "LIGHT_S", "LIGHT_BOX_S", "BOX_S", "KERNEL_S", "WRITE_S"):
        monkeypatch.setattr(taker, name, 60.0)  # a busy box is slow, and none of these tests is about that
    reader = BoxReader(gb10_proc)

    async def taken(*pids: int, fetch: Any = metrics, **rest: Any) -> Evidence:
        values = {
            "profile": "gpt",
            "kind": EngineKind.VLLM,
            "reason": "no token for 300 s",
            "url": "http://127.0.0.1:1",
        }
        log = KernelLog(Path("/nonexistent/kmsg"), "/nonexistent/journalctl")
        request = EvidenceRequest(**(values | {"pids": frozenset(pids)} | rest))
        return await EvidenceTaker(parent, reader, fetch, log).take(request)

    return taken


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a Python program that has said that it is there."""
    running: list[subprocess.Popen[bytes]] = []

    def start(code: str, *argv: str) -> subprocess.Popen[bytes]:
        program = f"{code}\nprint('there', flush=True)\nimport time\ntime.sleep(300)"
        made = subprocess.Popen([sys.executable, "-c", program, *argv], stdout=subprocess.PIPE)
        running.append(made)
        assert made.stdout
        assert made.stdout.readline() == b"there\n"
        return made

    yield start
    for each in running:
        each.kill()
        each.wait()
        assert each.stdout
        each.stdout.close()


def py_spy(folder: Path, body: str) -> None:
    """A py-spy that runs this shell text."""
    file = folder / "py-spy"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)


def files(found: Evidence) -> dict[str, str]:
    assert found.folder is not None, found.problem
    return {each.name: each.read_text() for each in Path(found.folder).iterdir()}


def modes(found: Evidence) -> set[int]:
    folder = Path(found.folder or "")
    return {stat.S_IMODE(each.stat().st_mode) for each in (folder, *folder.iterdir())}


async def test_every_part_is_there_and_for_its_owner_only(take: Take, child: Any) -> None:
    """Seven files of a vLLM; nobody else may read them."""
    one = child("")
    found = await take(one.pid, log=["INFO 11-23 03:00:00 [core.py:1] hello"], looks=[{"running": 2}])
    assert found.problem is None
    texts = files(found)
    assert set(texts) == {"summary.json", "processes.txt", "stacks.txt", "log.txt", "metrics.txt", "kernel.txt"}
    summary = json.loads(texts["summary.json"])
    assert (summary["profile"], summary["reason"], summary["looks"]) == ("gpt", "no token for 300 s", [{"running": 2}])
    assert summary["memory"]["total"] == 127600748 * 1024
    assert summary["not_known"] == {}
    assert texts["metrics.txt"] == "vllm:num_requests_running 2.0\n"
    assert "hello" in texts["log.txt"]
    assert "not readable: it needs the group adm" in texts["kernel.txt"]
    assert "== /proc/buddyinfo" in texts["kernel.txt"]
    assert "compact_" in texts["kernel.txt"] or "pgscan" in texts["kernel.txt"]
    assert "py-spy is not installed" in texts["stacks.txt"]
    assert modes(found) == {0o700, 0o600}


async def test_a_stopped_process_is_seen_as_stopped(take: Take, child: Any) -> None:
    """As the kernel tells: state T, with the place where its thread waits."""
    one = child("")
    one.send_signal(signal.SIGSTOP)
    await asyncio.to_thread(os.waitid, os.P_PID, one.pid, os.WSTOPPED | os.WNOWAIT)
    text = files(await take(one.pid))["processes.txt"]
    assert f"pid {one.pid} " in text
    assert "state T (stopped)" in text
    assert "1 thread: T " in text
    assert "0% of a core over 0.1 s" in text


async def test_five_hundred_threads_are_a_few_lines(take: Take, child: Any) -> None:
    """Grouped by state and place; light evidence is these and the figures."""
    one = child(
        "import threading\nfor _ in range(500): threading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    light = await take(one.pid, light=True)
    assert set(files(light)) == {"summary.json", "processes.txt"}
    text = files(light)["processes.txt"]
    assert "threads  501" in text
    groups = [int(line.split()[0]) for line in text.splitlines() if " thread: " in line or " threads: " in line]
    assert sum(groups) == 501
    assert len(groups) < 10


async def test_a_busy_thread_is_named(take: Take, child: Any) -> None:
    """A live-lock has a processor to itself."""
    one = child("import threading\ndef spin():\n  while True: pass\nthreading.Thread(target=spin, daemon=True).start()")
    text = files(await take(one.pid))["processes.txt"]
    assert "busy: " in text


async def test_a_command_line_has_no_secret(take: Take, child: Any) -> None:
    """Keys by their flag, by their variable and by their form."""
    one = child("", "--api-key", "letmein", "--hf-token=alsosecret", "HF_TOKEN=third", TOKEN, "--port", "8000")
    text = files(await take(one.pid))["processes.txt"]
    assert "--api-key *** --hf-token=*** HF_TOKEN=*** *** --port 8000" in text


async def test_stacks_of_py_spy_are_kept(take: Take, child: Any, tools_folder: Path) -> None:
    """Asked for one process, without a pause of it."""
    py_spy(
        tools_folder,
        f"""echo "Process 1: vllm serve --hf-token=alsosecret"; echo 'Python v3.12'
        echo "$@"; echo 'Thread 1 (idle): "MainThread" {TOKEN}'""",
    )
    one = child("")
    text = files(await take(one.pid))["stacks.txt"]
    assert f"dump --nonblocking --pid {one.pid}" in text
    assert 'Thread 1 (idle): "MainThread" ***' in text
    assert "alsosecret" not in text


async def test_a_py_spy_that_hangs_costs_no_other_part(
    take: Take, child: Any, tools_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended, with the children that it started."""
    monkeypatch.setattr("sparkdash.host.evidence.stacks.DUMP_S", 0.5)
    py_spy(tools_folder, f"echo $$ > {tools_folder}/pid; sleep 300 & sleep 300")
    found = await take(child("").pid)
    texts = files(found)
    assert "py-spy gave no answer within 0.5 s" in texts["stacks.txt"]
    assert "num_requests_running" in texts["metrics.txt"]
    assert proc.family(int((tools_folder / "pid").read_text())) == set()


async def test_a_py_spy_that_talks_without_end_is_cut(take: Take, child: Any, tools_folder: Path) -> None:
    """50 MB, of which the beginning is of use."""
    py_spy(tools_folder, "echo 'Thread 1 (active)'; head -c 50000000 /dev/zero | tr '\\0' x")
    texts = files(await take(child("").pid))
    assert "Thread 1 (active)" in texts["stacks.txt"]
    assert sum(map(len, texts.values())) < 2_000_000


async def test_a_py_spy_that_may_not_look_says_what_to_do(take: Take, child: Any, tools_folder: Path) -> None:
    """The command to type, with the pid."""
    py_spy(tools_folder, "echo 'Permission Denied: Try running again with elevated permissions' >&2; exit 1")
    one = child("")
    text = files(await take(one.pid))["stacks.txt"]
    assert f"sudo py-spy dump --nonblocking --pid {one.pid}" in text
    assert "ptrace_scope" in text


async def test_prompts_and_tokens_stay_out_of_the_log(take: Take) -> None:
    """Request lines, dumps after a failed step with what follows them, verbose bodies."""
    log = [
        f"(EngineCore pid=7) ERROR 11-23 03:00:00 [dump_input.py:76] Dumping scheduler output: SchedulerOutput({PROMPT}",
        f"  {PROMPT}",
        f"(APIServer pid=1) INFO 11-23 03:00:01 [logger.py:9] Received request c-1: prompt: '{PROMPT}', params: x",
        f'srv  log_server_r: request: {{"messages": [{{"content": "{PROMPT}"}}]}}',
        f"[2026-11-23 03:00:02] Receive: obj=GenerateReqInput(rid='1', text='{PROMPT}', input_ids=None)",
        f"INFO 11-23 03:00:03 token {TOKEN}",
        f"0.00.545.463 D common_sampler_init: prefill token: 115 = {PROMPT}",
        f'0.00.547.315 D srv    operator(): http: streamed chunk: data: {{"delta":{{"content":"{PROMPT}"}}}}',
        f'data: {{"choices":[{{"delta":{{"content":"{PROMPT}"}}}}]}}',
        "INFO 11-23 03:00:04 Avg prompt throughput: 0.0 tokens/s, Running: 2 reqs",
    ]
    text = files(await take(log=log))["log.txt"]
    assert PROMPT not in text
    assert TOKEN not in text
    assert "Avg prompt throughput: 0.0 tokens/s, Running: 2 reqs" in text
    assert text.count("it may hold a prompt") == 6


async def test_a_token_at_the_end_of_what_is_kept_is_masked(take: Take) -> None:
    """Half of it has no form by which it could be known."""
    text = files(await take(log=[f"{'x' * 1990} {TOKEN}"]))["log.txt"]
    assert "hf_" not in text


async def test_only_the_last_lines_of_the_log_are_kept(take: Take) -> None:
    """200 of them, each cut."""
    text = files(await take(log=[f"INFO 11-23 line {number} {'x' * 9000}" for number in range(1000)]))["log.txt"]
    assert len(text.splitlines()) == 200
    assert len(text) < 500_000


async def test_slots_of_llama_server_are_figures_only(take: Take) -> None:
    """The prompt is a part of its answer."""
    texts = files(await take(kind=EngineKind.LLAMACPP))
    assert json.loads(texts["slots.json"]) == [{"id": 0, "is_processing": True, "next_token": [{"n_decoded": 7}]}]


async def test_an_engine_that_does_not_answer_is_told_so(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence, an error and rubbish, each in its own file."""
    monkeypatch.setattr(taker, "PAGE_S", 0.3)

    async def silent(url: str) -> bytes:
        if url.endswith("/slots"):
            return b"<html>"
        await asyncio.Event().wait()
        raise AssertionError

    texts = files(await take(kind=EngineKind.LLAMACPP, fetch=silent))
    assert texts["metrics.txt"] == "Not taken: no answer within 0.3 s.\n"
    assert "not_taken" in texts["slots.json"]


async def test_processes_that_are_gone_are_told(take: Take) -> None:
    """Between the look that found the engine stuck and this one it may end."""
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    assert f"Ended, or beyond the limit of processes: {gone.pid}" in files(await take(gone.pid))["processes.txt"]
    assert "processes are unknown" in files(await take())["processes.txt"]


@pytest.mark.parametrize("profile", ["../../etc/passwd", "a/b\0c", "..", "", "x" * 5000, "größe 🙂", "-rf *"])
async def test_any_name_of_a_profile_makes_a_safe_folder(take: Take, parent: Path, profile: str) -> None:
    """Inside the folder of incidents, one level deep."""
    found = await take(profile=profile, light=True)
    assert os.listdir(parent) == [Path(found.folder or "").relative_to(parent).name]  # noqa: PTH208 - async


async def test_two_at_once_have_a_folder_each(take: Take) -> None:
    """Two engines may freeze in one second, also two with names that look alike."""
    first, second = await asyncio.gather(take(profile="a/b", light=True), take(profile="a b", light=True))
    assert first.folder != second.folder
    assert set(files(first)) == set(files(second)) == {"summary.json", "processes.txt"}


def one_more(parent: Path, at: float, *, light: bool) -> Path:
    made = incident_folder.create(parent, "a", at, light=light)
    incident_folder.forget_old(made)
    return made


def test_the_newest_twenty_are_kept_and_nothing_else_is_touched(parent: Path, tmp_path: Path) -> None:
    """Suspicions do not push out hangs; a stranger's file and a link stay."""
    parent.mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    (parent / "notes").mkdir()
    (parent / "20200101T000000Z-link").symlink_to(tmp_path / "mine")
    made = [one_more(parent, float(at * 60), light=False) for at in range(25)]
    light = [one_more(parent, 1e9 + at * 60, light=True) for at in range(15)]
    kept = set(parent.iterdir())
    assert kept == {*made[-20:], *light[-10:], parent / "notes", parent / "20200101T000000Z-link"}


async def test_each_taking_removes_what_is_too_old(take: Take, parent: Path) -> None:
    """After the new evidence is written: a slow disk costs no part of it."""
    for at in range(25):
        incident_folder.create(parent, "a", float(at * 60), light=False)
    found = await take()
    assert Path(found.folder or "").name in os.listdir(parent)  # noqa: PTH208 - async
    assert len(os.listdir(parent)) == 20  # noqa: PTH208 - async


def test_a_clock_that_was_set_back_does_not_lose_the_newest(parent: Path) -> None:
    """The folder that is being written stays, whatever its name's place in the order."""
    for at in range(20):
        one_more(parent, 1e9 + at, light=False)
    newest = one_more(parent, 0.0, light=False)
    assert newest.exists()
    assert len(list(parent.iterdir())) == 20


async def test_a_folder_that_cannot_be_written_is_told_and_nothing_fails(take: Take, parent: Path) -> None:
    """The state folder's place is taken by a file."""
    parent.parent.write_text("not a folder")
    found = await take()
    assert found.folder is None
    assert "cannot be written: Not a directory" in (found.problem or "")


async def test_a_full_disk_is_told(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could be written stays."""
    real = incident_folder.write

    def full(folder: Path, name: str, text: str) -> None:
        if name == "kernel.txt":
            raise OSError(28, "No space left on device")
        real(folder, name, text)

    monkeypatch.setattr(incident_folder, "write", full)
    found = await take()
    assert "summary.json" in files(found)
    problem = "Part of the evidence is missing: kernel.txt cannot be written: No space left on device."
    assert found.problem == problem


async def test_a_box_without_a_free_thread_is_told(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where thousands of processes are at the limit: a repair goes on without evidence."""

    async def none_left(_work: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(taker, "in_thread", none_left)
    assert "can't start new thread" in ((await take()).problem or "")


async def test_a_disk_that_hangs_does_not_hold_up_the_repair(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a dead NFS mount does."""
    monkeypatch.setattr(taker, "WRITE_S", 0.2)
    monkeypatch.setattr(incident_folder, "create", lambda *_a, **_k: time.sleep(3))
    began = time.monotonic()
    found = await take()
    assert time.monotonic() - began < 2
    assert "did not answer within 0.2 s" in (found.problem or "")


async def test_a_driver_that_hangs_costs_the_gpu_figures_only(
    parent: Path, monkeypatch: pytest.MonkeyPatch, gb10_proc: Path
) -> None:
    """The memory's figures are there, and the summary says what is not known."""
    monkeypatch.setattr(taker, "BOX_S", 0.2)

    class Hung(BoxReader):
        async def gpu(self) -> Any:
            await asyncio.Event().wait()

    log = KernelLog(Path("/nonexistent/kmsg"), "/nonexistent/journalctl")
    request = EvidenceRequest(profile="a", kind=EngineKind.VLLM, reason="r")
    found = await EvidenceTaker(parent, Hung(gb10_proc), metrics, log).take(request)
    summary = json.loads(files(found)["summary.json"])
    assert summary["not_known"] == {"gpu": "no answer within 0.2 s."}
    assert summary["memory"]


async def test_a_taking_that_is_cancelled_leaves_no_task(take: Take, child: Any) -> None:
    """A daemon that is told to end does not wait for it."""
    before, asked = asyncio.all_tasks(), asyncio.Event()

    async def silent(_url: str) -> bytes:
        asked.set()
        return await asyncio.Future()

    taking = asyncio.create_task(take(child("").pid, fetch=silent))
    await asked.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert asyncio.all_tasks() == before
