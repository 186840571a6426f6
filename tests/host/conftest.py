"""A GB10's /proc, and stand-ins for NVIDIA's library."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_nvml import FakeNvml

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


@pytest.fixture
def gb10_nvml() -> Iterator[FakeNvml]:
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
