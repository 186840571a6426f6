"""Evidence of an engine that hangs, taken of real processes."""

import asyncio
import json
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.engine import Evidence, EvidenceRequest
from sparkdash.domain.profile import EngineKind
from sparkdash.host import evidence
from sparkdash.host.evidence import EvidenceTaker
from sparkdash.host.kernel_log import KernelLog
from sparkdash.host.processes import proc

TOKEN = "hf_notarealtokenbutlongenough"
PROMPT = "my most secret prompt"
Take = Callable[..., Any]
Program = Callable[[str, str], Path]


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "incidents"


@pytest.fixture
def take(parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Take:
    """Take evidence of these pids; the rest of the request as given. No py-spy of this box is found."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))

    async def taken(*pids: int, **rest: Any) -> Evidence:
        values = {"profile": "gpt", "kind": EngineKind.VLLM, "reason": "no token for 300 s"}
        log = KernelLog("/nonexistent/journalctl")
        request = EvidenceRequest(**(values | {"pids": frozenset(pids)} | rest))
        return await EvidenceTaker(parent, log).take(request)

    return taken


@pytest.fixture
def pid(new_child: Any) -> int:
    """A Python process's."""
    return int(new_child(sys.executable, "-c", "print(flush=True); import time; time.sleep(300)").pid)


def files(found: Evidence) -> dict[str, str]:
    assert found.folder is not None, found.problem
    return {each.name: each.read_text() for each in Path(found.folder).iterdir()}


def modes(found: Evidence) -> set[int]:
    folder = Path(found.folder or "")
    return {stat.S_IMODE(each.stat().st_mode) for each in (folder, *folder.iterdir())}


async def test_every_part_is_there_and_for_its_owner_only(take: Take, pid: int) -> None:
    found = await take(pid, log=["INFO 11-23 03:00:00 [core.py:1] hello"], looks=[{"running": 2}])
    assert found.problem is None
    texts = files(found)
    assert set(texts) == {"summary.json", "stacks.txt", "log.txt", "kernel.txt"}
    summary = json.loads(texts["summary.json"])
    assert (summary["profile"], summary["reason"], summary["looks"]) == ("gpt", "no token for 300 s", [{"running": 2}])
    assert "hello" in texts["log.txt"]
    assert "not readable: it needs the group adm" in texts["kernel.txt"]
    assert "== /proc/meminfo\nMemTotal:" in texts["kernel.txt"]
    assert "== /proc/buddyinfo" in texts["kernel.txt"]
    assert "py-spy is not installed" in texts["stacks.txt"]
    assert modes(found) == {0o700, 0o600}


async def test_stacks_of_py_spy_are_kept(take: Take, pid: int, program: Program) -> None:
    program(
        "py-spy",
        f"""echo "Process 1: vllm serve --hf-token=alsosecret"; echo 'Python v3.12'
        echo "$@"; echo 'Thread 1 (idle): "MainThread" {TOKEN}'""",
    )
    text = files(await take(pid))["stacks.txt"]
    assert f"dump --nonblocking --pid {pid}" in text
    assert 'Thread 1 (idle): "MainThread" ***' in text
    assert "alsosecret" not in text


async def test_a_py_spy_that_hangs_costs_no_other_part(
    take: Take, pid: int, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkdash.host.evidence.DUMP_S", 0.5)
    program("py-spy", f"echo $$ > {tmp_path}/pid; sleep 300 & sleep 300")
    texts = files(await take(pid))
    assert "py-spy gave no answer within 0.5 s" in texts["stacks.txt"]
    assert "== kernel log since" in texts["kernel.txt"]
    leader = int((tmp_path / "pid").read_text())
    async with asyncio.timeout(10):
        while proc.family(leader):  # noqa: ASYNC110 - killed, and on a busy box not yet gone
            await asyncio.sleep(0.01)


async def test_a_py_spy_that_talks_without_end_is_cut(take: Take, pid: int, program: Program) -> None:
    program("py-spy", "echo 'Thread 1 (active)'; head -c 50000000 /dev/zero | tr '\\0' x")
    texts = files(await take(pid))
    assert "Thread 1 (active)" in texts["stacks.txt"]
    assert sum(map(len, texts.values())) < 2_000_000


async def test_a_py_spy_that_may_not_look_says_what_to_do(take: Take, pid: int, program: Program) -> None:
    program("py-spy", "echo 'Permission Denied: Try running again with elevated permissions' >&2; exit 1")
    text = files(await take(pid))["stacks.txt"]
    assert f"sudo py-spy dump --nonblocking --pid {pid}" in text
    assert "ptrace_scope" in text


async def test_prompts_and_tokens_stay_out_of_the_log(take: Take) -> None:
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
    text = files(await take(log=[f"INFO 11-23 line {number} {'x' * 9000}" for number in range(250)]))["log.txt"]
    assert len(text.splitlines()) == 200
    assert len(text) < 500_000


@pytest.mark.parametrize("profile", ["../../etc/passwd", "a/b\0c", "..", "", "x" * 5000, "größe 🙂", "-rf *"])
async def test_any_name_of_a_profile_makes_a_safe_folder(take: Take, parent: Path, profile: str) -> None:
    found = await take(profile=profile)
    assert os.listdir(parent) == [Path(found.folder or "").relative_to(parent).name]  # noqa: PTH208 - async


async def test_two_at_once_have_a_folder_each(take: Take) -> None:
    """Two engines may freeze in one second, also two with names that look alike."""
    first, second = await asyncio.gather(take(profile="a/b"), take(profile="a b"))
    assert first.folder != second.folder
    assert set(files(first)) == set(files(second))


def test_the_newest_twenty_are_kept_and_nothing_else_is_touched(take: Take, parent: Path, tmp_path: Path) -> None:
    parent.mkdir(parents=True)
    (tmp_path / "mine").mkdir()
    others = parent / "notes", parent / "20200101T000000Z-link"
    others[0].mkdir()
    others[1].symlink_to(tmp_path / "mine")
    made = [evidence.create_folder(parent, "a", float(at * 60)) for at in range(25)]
    found = asyncio.run(take())
    assert set(parent.iterdir()) == {*made[-19:], Path(found.folder or ""), *others}


def test_a_clock_that_was_set_back_does_not_lose_the_newest(parent: Path) -> None:
    for at in range(20):
        evidence.create_folder(parent, "a", 1e9 + at)
    newest = evidence.create_folder(parent, "a", 0.0)
    evidence.forget_old(newest)
    assert newest.exists()
    assert len(list(parent.iterdir())) == 20


async def test_a_folder_that_cannot_be_written_is_told_and_nothing_fails(take: Take, parent: Path) -> None:
    parent.parent.write_text("not a folder")
    found = await take()
    assert found.folder is None
    assert "cannot be written: Not a directory" in (found.problem or "")


async def test_a_full_disk_is_told(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    real = evidence.write_file

    def full(folder: Path, name: str, text: str) -> None:
        if name == "kernel.txt":
            raise OSError(28, "No space left on device")
        real(folder, name, text)

    monkeypatch.setattr(evidence, "write_file", full)
    found = await take()
    assert "summary.json" in files(found)
    problem = "Part of the evidence is missing: kernel.txt: No space left on device."
    assert found.problem == problem


async def test_a_part_that_hangs_costs_no_other(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a dead NFS mount does; the repair goes on."""
    monkeypatch.setattr(evidence, "TAKE_S", 0.5)
    monkeypatch.setattr(evidence, "log_lines", lambda _lines: time.sleep(3))
    found = await take(log=["INFO"])
    assert "log.txt took longer than 0.5 s" in (found.problem or "")
    assert set(files(found)) == {"summary.json", "stacks.txt", "kernel.txt"}


async def test_a_taking_that_is_cancelled_leaves_no_task(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    before, asked = asyncio.all_tasks(), asyncio.Event()

    async def silent(_pids: object) -> str:
        asked.set()
        return await asyncio.Future()

    monkeypatch.setattr(evidence, "python_stacks", silent)
    taking = asyncio.create_task(take())
    await asked.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert asyncio.all_tasks() == before


@given(st.lists(st.text(max_size=80), max_size=30))
def test_no_log_trips_its_reader(lines: list[str]) -> None:
    kept = evidence.log_lines(lines)
    assert len(kept) <= len(lines)
    assert not [line for line in kept if "\n" in line or "\x1b" in line]
