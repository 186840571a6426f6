"""Child of a build that never outlives it: run under `keeper`, whose input ends with this process.

Owns: the pipe between both, and the wait for the end. Must not know what is run.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from sparkdash.host.command import begin_child, end_child
from sparkdash.host.image_build import keeper

END_S = 15.0
"""Longest wait for the processes of a child that is ended."""


@asynccontextmanager
async def kept_child(
    words: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program for the length of the block; stdout is a pipe with both its outputs.

    At the end of the block, or of this process however it ends, nothing that the program began is left.
    """
    hears, holds = os.pipe()
    try:
        process = await begin_child(
            [sys.executable, str(Path(keeper.__file__)), *words],
            stdin=hears,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=cwd,
            env=dict(env or os.environ),
        )
    except BaseException:
        os.close(holds)
        raise
    finally:
        os.close(hears)
    try:
        yield process
    finally:
        os.close(holds)
        await asyncio.shield(_ended(process))


async def _ended(process: asyncio.subprocess.Process) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await process.wait()
    await end_child(process)
