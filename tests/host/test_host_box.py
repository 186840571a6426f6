"""BoxReader: the kernel's and the driver's figures together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sparkdash.host.box import BoxReader
from sparkdash.host.nvml import NOTHING, Nvml
from sparkdash.host.processes import proc
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


async def test_others_hold_their_gpu_and_their_anonymous_memory(gb10_proc: Path, gb10_nvml: Any) -> None:
    """All processes but the engine's: shared pages, which would count in each, threads of the kernel and the gone are left out."""
    for pid, text in (("7", "Name:\tdesktop\nRssAnon:\t 500 kB\nRssShmem:\t 9000 kB\n"), ("2", "Name:\tkthreadd\n")):
        (gb10_proc / pid).mkdir()
        (gb10_proc / pid / "status").write_text(text)
    (gb10_proc / "8").mkdir()
    reader = BoxReader(gb10_proc, Nvml(gb10_nvml))
    reading = await reader.gpu()
    assert await reader.others_bytes({4242}, reading) == 50 * MIB + 500 * KIB
    assert await reader.others_bytes({7}, reading) == (63931 + 50) * MIB + 3145728 * KIB
    assert await reader.others_bytes({7}, NOTHING) == 3145728 * KIB
    reader.close()


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


def test_what_a_process_reads_and_keeps_counts_as_taken_in(tmp_path: Path) -> None:
    """Also from the page cache: a second read of the same file is progress like the first."""
    file = tmp_path / "weights"
    file.write_bytes(bytes(8 * MIB))
    before = proc.taken_in([os.getpid()])[os.getpid()]
    for _ in range(2):
        assert file.read_bytes()
    after = proc.taken_in([os.getpid()])[os.getpid()]
    assert after - before >= 12 * MIB
    assert proc.taken_in([2**22 + 1]) == {}


def test_memory_counts_where_what_is_read_may_not_be_asked(tmp_path: Path) -> None:
    """The kernel tells of another user's process what it holds, and not what it reads and writes."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7/status").write_text("Name:\tx\nVmRSS:\t    2048 kB\n")
    assert proc.taken_in([7], tmp_path) == {7: 2 * MIB}
    assert not proc.tells_reads([7], tmp_path)
    (tmp_path / "7/io").write_text("rchar: 1000\nwchar: 1\n")
    assert proc.taken_in([7], tmp_path) == {7: 2 * MIB + 1001}
    assert proc.tells_reads([6, 7], tmp_path)
