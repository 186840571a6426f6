"""The kernel's log through /dev/kmsg and through journalctl. A packet pipe stands in for /dev/kmsg: one record a read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sparkdash.host.kernel_lines import KernelKind, KernelLine
from sparkdash.host.kernel_log import KernelLog, KernelTail

NO_MEMORY = "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)"
NOW = 1_800_000_000.0
UP_S = 5_000.0
CLOSED = Path("/nonexistent/kmsg")
HINT = (
    "Hint: You are currently not seeing messages from other users and the system.\n"
    "      Users in groups 'adm', 'systemd-journal' can see all messages.\n"
)


class Kmsg:
    """A pipe in packet mode; each write is one record."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
        self.path = Path(f"/proc/self/fd/{self._read}")

    def says(self, text: str, at_s: float, priority: int = 4) -> None:
        os.write(self._write, f"{priority},1,{int(at_s * 1e6)},-;{text}\n SUBSYSTEM=pci\n".encode())

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@pytest.fixture
def kmsg() -> Iterator[Kmsg]:
    made = Kmsg()
    yield made
    made.close()


def log_of(kmsg: Path = CLOSED, journalctl: str = "/nonexistent/journalctl") -> KernelLog:
    return KernelLog(kmsg, journalctl, wall=lambda: NOW, monotonic=lambda: UP_S)


@pytest.fixture
def journalctl(tmp_path: Path) -> Callable[[str], str]:
    """Make a journalctl that runs this shell text; its arguments go into the file `asked`."""

    def make(body: str) -> str:
        program = tmp_path / "journalctl"
        program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n{body}\n')
        program.chmod(0o755)
        return str(program)

    return make


async def test_records_since_a_moment_with_their_time(kmsg: Kmsg) -> None:
    """Earlier ones are left out; the time is the boot's plus the record's."""
    kmsg.says(NO_MEMORY, UP_S - 3600)
    kmsg.says(NO_MEMORY, UP_S - 60)
    kmsg.says("usb 1-1: new device", UP_S - 50)
    found = await log_of(kmsg.path).since(NOW - 120)
    assert found is not None
    assert [(line.kind, line.at) for line in found.lines] == [(KernelKind.DRIVER_MEMORY, NOW - 60)]


async def test_what_a_program_writes_into_the_log_does_not_count(kmsg: Kmsg) -> None:
    """Only the kernel has facility 0: anybody's forged kill would name a false reason."""
    kmsg.says("Out of memory: Killed process 1 (x) anon-rss:1kB", UP_S, priority=(1 << 3) | 4)
    found = await log_of(kmsg.path).since(0)
    assert found is not None
    assert found.lines == ()


async def test_a_follower_gets_what_is_new_and_only_once(kmsg: Kmsg) -> None:
    """It never waits."""
    async with log_of(kmsg.path).follow() as tail:
        assert tail is not None
        assert tail.news() == ()
        kmsg.says(NO_MEMORY, UP_S)
        kmsg.says(NO_MEMORY, UP_S)
        assert len(tail.news()) == 2
        assert tail.news() == ()


async def test_a_caller_that_fails_while_it_follows_keeps_its_error(kmsg: Kmsg) -> None:
    """An OSError of its own is not taken for one of the log."""
    with pytest.raises(OSError, match="mine"):
        async with log_of(kmsg.path).follow():
            raise OSError("mine")


async def test_without_kmsg_the_journal_is_read(journalctl: Callable[[str], str], tmp_path: Path) -> None:
    """Kernel lines only, from the moment on, and no more than are of use."""
    program = journalctl(
        f"echo '{NOW - 50:.6f} spark kernel: {NO_MEMORY}'\n"
        f"echo '{NOW - 40:.6f} spark systemd[1]: {NO_MEMORY}'\n"
        "echo '    a continued line'"
    )
    found = await log_of(journalctl=program).since(NOW - 60)
    assert found is not None
    assert [(line.kind, line.at) for line in found.lines] == [(KernelKind.DRIVER_MEMORY, NOW - 50)]
    assert f"--since=@{int(NOW - 60)}" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(
    "says",
    [
        f"cat >&2 <<'END'\n{HINT}END\necho '-- No entries --'",
        "echo 'No journal files were found.' >&2; echo '-- No entries --'",
        "echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1",
        "exec sleep 60",
    ],
)
async def test_a_journal_that_is_closed_to_us_or_hangs_is_unknown(
    journalctl: Callable[[str], str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None, which is not the same as nothing found; nobody follows it either."""
    monkeypatch.setattr("sparkdash.host.kernel_log.READ_S", 0.5)
    log = log_of(journalctl=journalctl(says))
    assert await log.since(NOW) is None
    async with log.follow() as tail:
        assert tail is None


async def test_no_way_to_the_log_is_unknown() -> None:
    """Neither the device nor the program."""
    log = log_of()
    assert await log.since(0) is None
    async with log.follow() as tail:
        assert tail is None


async def test_an_endless_journal_is_cut(journalctl: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read by then counts."""
    monkeypatch.setattr("sparkdash.host.kernel_log.OUTPUT_LIMIT", 100_000)
    found = await log_of(journalctl=journalctl(f"yes '{NOW:.6f} spark kernel: {NO_MEMORY}'")).since(NOW)
    assert found is not None
    assert found.count(KernelKind.DRIVER_MEMORY) > 500


async def test_a_journal_is_followed_by_a_child_that_ends_with_the_block(
    journalctl: Callable[[str], str], tmp_path: Path
) -> None:
    """It lives for the length of the load."""
    fifo, pid_file = tmp_path / "fifo", tmp_path / "pid"
    os.mkfifo(fifo)
    program = journalctl(f'case "$*" in *--follow*) echo $$ > {pid_file}; exec cat {fifo};; esac')
    async with log_of(journalctl=program).follow() as tail:
        assert tail is not None
        with await asyncio.to_thread(fifo.open, "w") as said:
            said.write(f"{NOW:.6f} spark kernel: {NO_MEMORY}\n")
            said.flush()
            news = await first_news(tail)
        assert [line.kind for line in news] == [KernelKind.DRIVER_MEMORY]
        pid = int(pid_file.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def first_news(tail: KernelTail) -> tuple[KernelLine, ...]:
    async with asyncio.timeout(10):
        while True:
            if news := tail.news():
                return news
            await asyncio.sleep(0.01)


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="no /dev/kmsg here")
async def test_the_log_of_this_box_is_read_or_unknown() -> None:
    """The real device or journal; a follower starts at its end."""
    log = KernelLog()
    found = await log.since(0)
    async with log.follow() as tail:
        assert (tail is None) == (found is None)
        assert tail is None or tail.news() == ()
