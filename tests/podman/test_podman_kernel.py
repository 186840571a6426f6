"""The kernel kills a container for want of memory, and its log says whose process that was."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import pytest

from sparkdash.domain.container import ContainerInfo
from sparkdash.host.kernel_lines import KernelKind, explains, is_of, meaning
from sparkdash.host.kernel_log import KernelLog
from sparkdash.units import MIB

pytestmark = [pytest.mark.full, pytest.mark.podman]
GROUPS = Path("/sys/fs/cgroup")


def memory_limit(container: ContainerInfo) -> Path:
    """The file that limits its memory, in either version of control groups."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{container.pid}/cgroup").read_text().splitlines()]
    files = [
        GROUPS / "memory" / path.lstrip("/") / "memory.limit_in_bytes" for _, kind, path in lines if kind == "memory"
    ]
    files += [GROUPS / path.lstrip("/") / "memory.max" for number, _, path in lines if number == "0"]
    found = [file for file in files if os.access(file, os.W_OK)]
    if not found:
        pytest.skip("the memory of a container cannot be limited here")
    return found[0]


async def test_a_container_that_was_killed_is_known_by_its_control_group(container_ground: Any) -> None:
    """By its id alone: after the end nobody tells which pids it had."""
    log, began = KernelLog(), time.time()
    if await log.since(began) is None:
        pytest.skip("the kernel's log is not readable here")
    gate = container_ground.gate("go")
    spec = container_ground.spec(f"read x < {gate}; while :; do x=$x$x; done")
    container = await container_ground.runtime.start(spec)
    memory_limit(container).write_text(str(32 * MIB))
    await asyncio.to_thread(gate.write_text, "aaaaaaaa\n")
    assert await container_ground.runtime.wait(spec.name) == 137
    found = await log.since(began)
    assert found is not None
    line = explains(found, (), container.id)
    assert line is not None
    assert (line.kind, is_of(line, (), container.id)) == (KernelKind.OOM_KILL, True)
    assert f"the kernel killed sh (pid {line.pid}, which held " in meaning(line)
    assert explains(found, (), "ab" * 32) is None
