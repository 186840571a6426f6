"""The kernel's log: who may read it, and what its lines mean."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkdash.host.kernel_lines import (
    KEPT,
    KernelKind,
    KernelLine,
    advice,
    explains,
    findings,
    holds_up,
    is_of,
    meaning,
    read_line,
)
from sparkdash.host.kernel_log import KernelLog

NO_MEMORY = (
    "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from "
    "_memdescAllocInternal(pMemDesc) @ mem_desc.c:1359"
)
NOW = 1_800_000_000.0
HINT = (
    "Hint: You are currently not seeing messages from other users and the system.\n"
    "      Users in groups 'adm', 'systemd-journal' can see all messages.\n"
)


@pytest.fixture
def journalctl(program: Callable[[str, str], Path]) -> Callable[[str], str]:
    """Make a journalctl that runs this shell text; its arguments go into the file `calls`."""

    def make(body: str) -> str:
        return str(program("journalctl", body).with_name("bin") / "journalctl")

    return make


async def test_a_caller_that_fails_while_it_follows_keeps_its_error(journalctl: Callable[[str], str]) -> None:
    with pytest.raises(OSError, match="mine"):
        async with KernelLog(journalctl("true")).follow():
            raise OSError("mine")


async def test_lines_of_the_kernel_are_read_since_a_moment(journalctl: Callable[[str], str], tmp_path: Path) -> None:
    program = journalctl(
        f"echo '{NOW - 50:.6f} spark kernel: {NO_MEMORY}'\n"
        f"echo '{NOW - 40:.6f} spark systemd[1]: {NO_MEMORY}'\n"
        "echo '    a continued line'"
    )
    found = await KernelLog(program).since(NOW - 60)
    assert [(line.kind, line.at) for line in found.lines] == [(KernelKind.DRIVER_MEMORY, NOW - 50)]
    assert f"--since=@{int(NOW - 60)}" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("says", [
    f"cat >&2 <<'END'\n{HINT}END\necho '-- No entries --'",
    "echo 'No journal files were found.' >&2; echo '-- No entries --'",
    "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1", "exec sleep 60", None,
])  # fmt: skip
async def test_a_journal_that_is_closed_to_us_or_hangs_or_is_not_there_is_unknown(
    journalctl: Callable[[str], str], says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkdash.host.kernel_log.READ_S", 0.5)
    log = KernelLog(journalctl(says) if says else "/nonexistent/journalctl")
    assert await log.since(NOW) is None
    async with log.follow() as tail:
        assert tail is None


async def test_an_endless_journal_is_cut(journalctl: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkdash.host.kernel_log.OUTPUT_LIMIT", 100_000)
    found = await KernelLog(journalctl(f"yes '{NOW:.6f} spark kernel: {NO_MEMORY}'")).since(NOW)
    assert found.counts[KernelKind.DRIVER_MEMORY] > 500


async def test_a_journal_is_followed_by_a_child_that_ends_with_the_block(
    journalctl: Callable[[str], str], tmp_path: Path
) -> None:
    fifo, pid_file = tmp_path / "fifo", tmp_path / "pid"
    os.mkfifo(fifo)
    program = journalctl(f'case "$*" in *--follow*) echo $$ > {pid_file}; exec cat {fifo};; esac')
    async with KernelLog(program).follow() as tail:
        with await asyncio.to_thread(fifo.open, "w") as said:
            said.write(f"{NOW:.6f} spark kernel: {NO_MEMORY}\n")
            said.flush()
            async with asyncio.timeout(10):
                while not (news := tail.news()):  # noqa: ASYNC110 - the child's doing
                    await asyncio.sleep(0.01)
        assert [line.kind for line in news] == [KernelKind.DRIVER_MEMORY]
        pid = int(pid_file.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_the_log_of_this_box_is_read_or_unknown() -> None:
    log = KernelLog()
    found = await log.since(0)
    async with log.follow() as tail:
        assert (tail is None) == (found is None)
        assert tail is None or tail.news() == ()


KILL = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    "task_memcg=/machine.slice/libpod-{id}.scope,task=VLLM::EngineCor,pid=4711,uid=1000",
    "Out of memory: Killed process 4711 (VLLM::EngineCor) total-vm:207832kB, anon-rss:38784kB, file-rss:5784kB, "
    "shmem-rss:1024kB, UID:1000 pgtables:136kB oom_score_adj:200",
)
ID = "ab" * 32


def line(text: str, at: float = 100.0) -> KernelLine:
    found = read_line(text, at)
    assert found is not None, text
    return found


def killed(container: str = ID) -> list[KernelLine]:
    return [line(text.replace("{id}", container)) for text in KILL]


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        (NO_MEMORY, KernelKind.DRIVER_MEMORY, {}),
        ("NVRM: sysmemConstruct_IMPL: *** Cannot allocate sysmem through fb heap", KernelKind.DRIVER_MEMORY, {}),
        ("NVRM: nvAssertOkFailedNoLog: Assertion failed: Generic Error [NV_ERR_GENERIC] @ nv_gpu_ops.c:1", KernelKind.DRIVER_FAULT, {}),
        ("NVRM: Xid (PCI:000f:01:00): 13, pid=2345, name=python3, Graphics Exception: ESR", KernelKind.XID,
         {"xid": 13, "pid": 2345, "process": "python3"}),
        ("NVRM: Xid (PCI:000f:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", KernelKind.XID,
         {"xid": 79, "pid": None}),
        ("NVRM: Xid (PCI:000f:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
         KernelKind.XID, {"xid": 154, "pid": None, "process": None}),
        ("Memory cgroup out of memory: Killed process 9 (a (b) c) total-vm:1kB, anon-rss:2kB, file-rss:0kB, shmem-rss:0kB",
         KernelKind.OOM_KILL, {"pid": 9, "process": "a (b) c", "bytes": 2048}),
        ("INFO: task nvidia-modeset/:123 blocked for more than 120 seconds.", KernelKind.HUNG_TASK,
         {"pid": 123, "process": "nvidia-modeset/"}),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:77]", KernelKind.HUNG_TASK, {"pid": 77}),
        ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", KernelKind.HUNG_TASK, {"pid": None}),
        ("python3: page allocation failure: order:9, mode:0x40cc0(GFP_KERNEL|__GFP_COMP), nodemask=(null)",
         KernelKind.PAGE_ALLOCATION, {"order": 9, "process": "python3"}),
        ("{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 4", KernelKind.HARDWARE, {}),
        ("mce: CPU1: Core temperature above threshold, cpu clock throttled (total events = 1)", KernelKind.HARDWARE, {}),
        ("Unable to handle kernel paging request at virtual address ffff800081234567", KernelKind.KERNEL_CRASH, {}),
        ("Kernel panic - not syncing: Fatal exception", KernelKind.KERNEL_CRASH, {}),
    ],
)  # fmt: skip
def test_a_line_that_matters_is_read(text: str, kind: KernelKind, told: dict[str, object]) -> None:
    found = line(text)
    assert found.kind is kind
    assert {name: getattr(found, name) for name in told} == told
    assert meaning(found)
    assert advice(found)


@pytest.mark.parametrize("text", [
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  580.95.05",
    "oom_reaper: reaped process 4711 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 31s!", "",
])  # fmt: skip
def test_other_lines_are_left_out(text: str) -> None:
    assert read_line(text, 1.0) is None


def test_a_line_is_bounded_and_without_secrets() -> None:
    """A process may put anything into its name."""
    found = line(f"INFO: task hf_{'x' * 30}:5 blocked for more than 120 seconds. {'y' * 9000}")
    assert len(found.text) <= 400
    assert "hf_x" not in found.text


def test_the_two_lines_of_a_kill_are_one_finding() -> None:
    found = findings(killed())
    assert found.counts[KernelKind.OOM_KILL] == 1
    (kill,) = found.lines
    assert (kill.pid, kill.bytes) == (4711, (38784 + 5784 + 1024) * 1024)
    assert ID in (kill.cgroup or "")
    assert meaning(kill) == "the kernel killed VLLM::EngineCor (pid 4711, which held 45 MiB) for want of memory"


def test_a_flood_is_counted_and_not_kept() -> None:
    found = findings(line(NO_MEMORY, float(at)) for at in range(3 * KEPT))
    assert found.counts[KernelKind.DRIVER_MEMORY] == 3 * KEPT
    assert (len(found.lines), found.lines[-1].at) == (KEPT, 3 * KEPT - 1)


def test_a_kill_explains_the_end_of_its_own_engine_only() -> None:
    found = findings([*killed(), line(NO_MEMORY)])
    by_pid = explains(found, {4711})
    assert by_pid.kind is KernelKind.OOM_KILL
    assert explains(found, set(), ID) == by_pid
    assert explains(found, {1}, "cd" * 32).kind is KernelKind.DRIVER_MEMORY
    assert explains(findings(killed()), {1}, "cd" * 32) is None


def test_the_clean_up_after_a_kill_explains_nothing() -> None:
    """Xid 45 follows each SIGKILL; an Xid of another process is not ours either."""
    ours = line("NVRM: Xid (PCI:000f:01:00): 45, pid=5, name=python3, Ch 00000008")
    other = line("NVRM: Xid (PCI:000f:01:00): 31, pid=6, name=python3, Ch 00000008, intr 00000000. MMU Fault")
    lost = line("NVRM: Xid (PCI:000f:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    assert explains(findings([ours, other]), {5}) is None
    assert explains(findings([ours, other]), {6}) == other
    assert explains(findings([ours, other, lost]), {5}) == lost


def test_a_kill_shortly_before_the_end_is_told_whosever_it_was() -> None:
    kill = findings(killed("cd" * 32)).lines[0]
    assert explains(findings([kill]), (), ID, near=kill.at - 10) == kill
    assert explains(findings([kill]), (), ID, near=kill.at + 10) is None
    assert not is_of(kill, (), ID)


def test_an_unknown_xid_is_told_with_its_number() -> None:
    found = line("NVRM: Xid (PCI:000f:01:00): 999, pid=5, name=python3, something new")
    assert meaning(found) == "the NVIDIA driver reported Xid 999 (not in our list)"
    assert "list of Xid errors" in advice(found)


def test_what_holds_an_engine_up_is_chosen_by_its_weight() -> None:
    order = [
        "NVRM: Xid (PCI:000f:01:00): 45, pid=5, name=python3, Ch 00000008",
        "python3: page allocation failure: order:9, mode:0x40cc0(GFP_KERNEL|__GFP_COMP), nodemask=(null)",
        NO_MEMORY,
        "INFO: task python3:77 blocked for more than 120 seconds.",
        "NVRM: Xid (PCI:000f:01:00): 119, Timeout after 6s of waiting for RPC response from GPU0 GSP!",
    ]
    lines = [line(text, float(at)) for at, text in enumerate(order)]
    assert holds_up(findings(lines[:1])) is None
    for count in range(2, 6):
        assert holds_up(findings(reversed(lines[:count]))) == lines[count - 1]


PIECES = st.sampled_from(
    ["NVRM: Xid (PCI): ", "Killed process ", " (x) anon-rss:", "kB", "oom-kill:", "task_memcg=/a,task=b,pid=", ",uid=0", "INFO: task ",
     " blocked for more than ", " seconds", ": page allocation failure: order:", "watchdog: BUG: soft lockup ", "[x:", "]", "pid=", "name=",
     "9" * 5000, "7", "\x00", "\u202e", " "]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=20), max_size=12).map("".join))
@example("9" * 10_000 + ": page allocation failure: order:7")
def test_no_line_trips_the_reader(text: str) -> None:
    found = read_line(text, 1.0)
    if found is not None:
        assert len(meaning(found)) < 6000
        assert advice(found)
        assert explains(findings([found]), {1}) in (found, None)
