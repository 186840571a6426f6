"""Children with a deadline, over real processes, and work in threads of its own."""

import asyncio
import os
import signal
import tempfile
import threading
from asyncio.subprocess import STDOUT, Process
from itertools import pairwise
from pathlib import Path
from threading import Thread

import psutil
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.host import thread
from sparkdash.host.command import LineSplitter, child_running, command_output, run_command, stdout_lines
from sparkdash.host.thread import in_thread


async def test_what_a_command_says_needs_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full one podman's list of containers came back empty, with exit code 0."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    done = await run_command(["sh", "-c", "printf 'a\\377'; echo b >&2; exit 3"], deadline_s=60)
    assert (done.code, done.out, done.err) == (3, "a\ufffd", "b\n")


async def test_a_command_that_hangs_is_killed_with_all_that_it_started() -> None:
    others = set(psutil.Process().children())
    begun = {each.pid for each in psutil.process_iter()}
    with pytest.raises(TimeoutError):
        await run_command(["sh", "-c", "sleep 4321 & sleep 4321"], deadline_s=0.5)
    assert set(psutil.Process().children()) <= others
    left = [
        each
        for each in psutil.process_iter(["cmdline"])
        if each.pid not in begun and "4321" in (each.info["cmdline"] or ())
    ]
    assert psutil.wait_procs(left, timeout=5)[1] == []


async def test_what_a_program_prints_is_both_its_streams() -> None:
    said = await command_output(["sh", "-c", "echo $A; echo b >&2; exit 3"], deadline_s=60, limit=100, env={"A": "a"})
    assert said == "a\nb\n"


async def test_a_program_that_does_not_end_printing_is_ended() -> None:
    others = set(psutil.Process().children(recursive=True))
    assert await command_output(["sh", "-c", "yes & yes"], deadline_s=60, limit=5) == "y\ny\ny"
    with pytest.raises(TimeoutError):
        await command_output(["sh", "-c", "sleep 60 & sleep 60"], deadline_s=0.05, limit=5)
    psutil.wait_procs(set(psutil.Process().children(recursive=True)) - others, timeout=30)
    assert set(psutil.Process().children(recursive=True)) <= others


async def test_cancelling_again_and_again_leaves_nothing_behind() -> None:
    begun: asyncio.Future[Process] = asyncio.get_running_loop().create_future()

    async def use() -> None:
        async with child_running(["sleep", "60"]) as process:
            begun.set_result(process)
            await process.wait()

    task = asyncio.ensure_future(use())
    process = await begun
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert process.returncode == -signal.SIGKILL
    assert process._transport.is_closing()  # type: ignore[attr-defined]


async def test_cancelling_again_and_again_while_the_child_is_made() -> None:
    others = set(psutil.Process().children())
    task = asyncio.ensure_future(run_command(["sleep", "60"], deadline_s=None))
    await asyncio.sleep(0)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert set(psutil.Process().children()) <= others


async def test_a_reader_that_stops_kills_a_child_that_never_stops_writing() -> None:
    async with child_running(["sh", "-c", "echo $$; exec yes"], stderr=STDOUT) as process:
        async for line in stdout_lines(process):
            pid = int(line)
            break
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_silence_has_a_limit() -> None:
    async with child_running(["sh", "-c", "printf 'a\nb'; exec sleep 60"], stderr=STDOUT) as process:
        process.stdout.feed_data(await process.stdout.readexactly(3))  # it is there, however slow the shell was
        said = stdout_lines(process, silence_s=0.05)
        assert await anext(said) == "a"
        with pytest.raises(TimeoutError):
            await anext(said)


def test_what_a_command_leaves_behind_does_not_hold_it_up() -> None:
    """`podman run -d` leaves a monitor that keeps the output open; the call ends with podman, on the daemon's own loop."""
    done = uvloop.run(run_command(["sh", "-c", "sleep 60 & echo $!"], deadline_s=60))
    os.kill(int(done.out), signal.SIGKILL)
    assert done.code == 0


def split(*chunks: bytes, limit: int = 100) -> list[str]:
    splitter = LineSplitter(limit)
    return [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.rest()


@pytest.mark.parametrize(("chunks", "lines"), [
    ((b"\rLoading 1%\rLoading 2%\rdone\nnext\n",), ["Loading 1%", "Loading 2%", "done", "next"]),
    ((b"a\r", b"\nb\r\n\nc\n\nd"), ["a", "b", "", "c", "", "d"]),
    ((b"\xff\xfe bad\n", b"\xc3", b"\xa9\n"), ["\ufffd\ufffd bad", "é"]),
    ((b"x" * 70, b"x" * 70, b"tail\nok\n"), ["x" * 100 + "…", "ok"]),
], ids=["progress bars", "line ends", "no text", "endless"])  # fmt: skip
def test_what_a_program_writes_becomes_lines(chunks: tuple[bytes, ...], lines: list[str]) -> None:
    assert split(*chunks) == lines


def test_a_progress_line_is_given_at_once() -> None:
    assert LineSplitter().feed(b"50%\r") == ["50%"]


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_chunk_borders_do_not_matter(data: bytes, cuts: list[int]) -> None:
    borders = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    chunks = [data[a:b] for a, b in pairwise(borders)]
    assert split(*chunks) == split(data)


async def test_work_waits_for_a_thread_that_the_box_cannot_give_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that starts thousands of processes must not end the daemon: it waits, and its deadlines hold."""
    monkeypatch.setattr(thread, "AGAIN_S", 0.001)
    start, failures = Thread.start, iter([True, True])

    def none_left(self: Thread) -> None:
        if next(failures, False):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(Thread, "start", none_left)
    assert await in_thread(lambda: threading.current_thread().name) == "sparkdash-work"
    failures = iter(lambda: True, False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await in_thread(lambda: None)
    monkeypatch.undo()
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 / 0)
