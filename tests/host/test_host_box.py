"""BoxReader: the kernel's and the driver's figures together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sparkdash.host.box import BoxReader
from sparkdash.host.nvml import NOTHING, Nvml
from sparkdash.units import KIB, MIB


async def test_an_engine_holds_its_gpu_and_its_own_host_memory(gb10_proc: Path, gb10_nvml: Any) -> None:
    """On a GB10: NVML's figure plus anonymous and shared host memory; file pages are page cache and left out."""
    reader = BoxReader(gb10_proc, Nvml(gb10_nvml))
    reading = await reader.gpu()
    assert reader.engine_bytes({4242}, reading) == 63931 * MIB + (3145728 + 1024) * KIB
    reader.close()


def test_without_nvml_the_host_memory_counts(gb10_proc: Path) -> None:
    """An engine on the CPU has only host memory."""
    assert BoxReader(gb10_proc).engine_bytes({4242}, NOTHING) == (3145728 + 1024) * KIB


def test_unknown_processes_are_unknown(gb10_proc: Path) -> None:
    """No pids, or pids that are gone: None, not 0."""
    reader = BoxReader(gb10_proc)
    assert reader.engine_bytes(set(), NOTHING) is None
    assert reader.engine_bytes({999}, NOTHING) is None


async def test_this_box() -> None:
    """The real box: memory is told, this very process holds some, and the GPU is told or is not."""
    reader = BoxReader()
    assert reader.memory().total > 0
    assert (reader.engine_bytes({os.getpid()}, NOTHING) or 0) > MIB
    reading = await reader.gpu()
    assert reading.gpu is None or reading.gpu.name
    reader.close()
