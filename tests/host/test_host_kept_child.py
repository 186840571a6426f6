"""A child of a build and all its processes end with whoever began it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from sparkdash.host.command import stdout_lines
from sparkdash.host.image_build import keeper
from sparkdash.host.image_build.kept import kept_child

TREE = 'sleep 1000 & setsid sleep 1000 & trap "" TERM INT; echo begun $$; wait'
"""A shell that refuses to end, with a child, and one in a session of its own, as a step of a Containerfile is."""


def tree_of(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


async def begun(process: asyncio.subprocess.Process) -> list[psutil.Process]:
    """Wait until the shell has begun both, which it says afterwards; list all of it."""
    return tree_of(int((await anext(stdout_lines(process))).split()[1]))


async def test_leaving_the_block_ends_the_whole_tree() -> None:
    async with kept_child(["sh", "-c", TREE]) as process:
        found = await begun(process)
    assert psutil.wait_procs(found, timeout=30)[1] == []


async def test_a_cancelled_caller_leaves_nothing() -> None:
    started: asyncio.Future[list[psutil.Process]] = asyncio.get_running_loop().create_future()

    async def build() -> None:
        async with kept_child(["sh", "-c", TREE]) as process:
            started.set_result(await begun(process))
            await process.wait()

    task = asyncio.create_task(build())
    found = await started
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert psutil.wait_procs(found, timeout=30)[1] == []


async def test_the_exit_code_and_both_outputs_come_through() -> None:
    async with kept_child(["sh", "-c", "echo out; echo err >&2; exit 7"]) as process:
        assert [line async for line in stdout_lines(process)] == ["out", "err"]
        assert await process.wait() == 7


def test_the_keeper_ends_the_tree_when_its_input_ends() -> None:
    """However the parent ended: the kernel closes the pipe."""
    words = [sys.executable, str(Path(keeper.__file__)), "sh", "-c", TREE]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        pid = int(process.stdout.readline().split()[1])
        found = tree_of(pid)
        process.stdin.close()
        assert process.wait(timeout=30) == 130
    assert psutil.wait_procs(found, timeout=30)[1] == []
