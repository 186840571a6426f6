"""A GB10's /proc, and stand-ins for NVIDIA's library."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

MEMINFO = """\
MemTotal:       127600748 kB
MemFree:         2904064 kB
MemAvailable:   54525952 kB
Buffers:           81240 kB
Cached:         53477376 kB
SwapCached:            0 kB
Shmem:           1048576 kB
SReclaimable:    2097152 kB
SwapTotal:      16777212 kB
SwapFree:       16252924 kB
HugePages_Total:       0
Hugepagesize:       2048 kB
"""
"""A GB10 with a big engine resident, in the shape and with the total that owners report (121.69 GiB)."""


@pytest.fixture
def gb10_proc(tmp_path: Path) -> Path:
    """/proc of a GB10 that is a little short of memory, with one process of an engine (pid 4242)."""
    proc = tmp_path / "proc"
    (proc / "pressure").mkdir(parents=True)
    (proc / "4242").mkdir()
    (proc / "meminfo").write_text(MEMINFO)
    (proc / "pressure/memory").write_text(
        "some avg10=4.00 avg60=1.00 avg300=0.10 total=1\nfull avg10=2.50 avg60=0.50 avg300=0.05 total=1\n"
    )
    (proc / "4242/status").write_text(
        "Name:\tVLLM::Worker\nRssAnon:\t 3145728 kB\nRssFile:\t 900000 kB\nRssShmem:\t 1024 kB\n"
    )
    return proc


class FakeNvml:
    """pynvml as a GB10 answers: memory is not supported, processes are told, every call is counted."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.failing: dict[str, int] = {"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED}
        self.hang = threading.Event()
        self.hang.set()
        self.answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetHandleByIndex": "handle",
            "nvmlDeviceGetName": "NVIDIA GB10",
            "nvmlSystemGetDriverVersion": "580.173.02",
            "nvmlDeviceGetMaxClockInfo": 3003,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=96, memory=0),
            "nvmlDeviceGetPowerUsage": 78_400,
            "nvmlDeviceGetTemperature": 71,
            "nvmlDeviceGetClockInfo": 2418,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x1 | 0x4 | 0x20,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
            "nvmlDeviceGetComputeRunningProcesses": [
                SimpleNamespace(pid=4242, usedGpuMemory=63931 << 20),
                SimpleNamespace(pid=7, usedGpuMemory=None),
            ],
            "nvmlDeviceGetGraphicsRunningProcesses": [
                SimpleNamespace(pid=4242, usedGpuMemory=100 << 20),
                SimpleNamespace(pid=9, usedGpuMemory=50 << 20),
            ],
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("NVML", "nvmlClocks")):
            return getattr(pynvml, name)
        return lambda *_: self._answer(name)

    def _answer(self, name: str) -> Any:
        self.calls[name] += 1
        self.hang.wait(30)
        if name in self.failing:
            raise pynvml.NVMLError(self.failing[name])
        return self.answers[name]


@pytest.fixture
def gb10_nvml() -> Iterator[FakeNvml]:
    """A GB10's driver."""
    fake = FakeNvml()
    yield fake
    fake.hang.set()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Puts a shell script of that name first in PATH, a stand-in for podman or docker; gives the file it logs its calls to."""

    def make(name: str, script: str) -> Path:
        folder, calls = tmp_path / "bin", tmp_path / "calls"
        folder.mkdir(exist_ok=True)
        file = folder / name
        file.write_text(f'#!/bin/sh\necho "$*" >> {calls}\n{script}\n')
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return calls

    return make
