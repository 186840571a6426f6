"""Files that are opened, read and closed, as this kernel tells it."""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkdash.host.inotify import FileOpens, OpenReport

READ = "import sys; f = open(sys.argv[1], 'rb', 0); f.read(int(sys.argv[2])); print(flush=True); sys.stdin.read()"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "w.gguf"
    made.write_bytes(b"w" * 12_345)
    return made


@contextmanager
def reader(file: Path, size: int) -> Iterator[int]:
    """The pid of a process that has read so much and holds the file open."""
    command = [sys.executable, "-c", READ, str(file), str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin
        assert child.stdout
        child.stdout.readline()
        yield child.pid
        child.stdin.close()


def test_an_open_and_its_end_are_told_and_its_position_between(file: Path, tmp_path: Path) -> None:
    """Only for files that are there; our own descriptors tell nothing."""
    with FileOpens([file, tmp_path / "gone"]) as opens:
        ((number, size),) = opens.sizes.items()
        assert size == 12_345
        assert list(opens.reports()) == []
        with reader(file, 5_000) as pid:
            assert list(opens.reports()) == [OpenReport(number, opened=True)]
            assert opens.positions({pid}) == {number: 5_000}
            with reader(file, 4_000) as slower:
                assert opens.positions({pid, slower, 2**22 + 1}) == {number: 4_000}
            assert opens.positions(set()) == {}
        assert list(opens.reports())[-1] == OpenReport(number, opened=False)


def test_a_mapping_ends_the_open_not_the_descriptor(file: Path) -> None:
    """A loader that maps its file closes the descriptor at once."""
    with FileOpens([file]) as opens:
        (number,) = opens.sizes
        with file.open("rb") as opened:
            mapped = mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ)
        assert list(opens.reports()) == [OpenReport(number, opened=True)]
        mapped.close()
        assert list(opens.reports()) == [OpenReport(number, opened=False)]


def test_a_reader_past_the_cache_has_no_position(file: Path) -> None:
    """Direct I/O leaves nothing to let go of."""
    with FileOpens([file]) as opens:
        (number,) = opens.sizes
        proc = file.parent / "proc"
        (proc / "7/fd").mkdir(parents=True)
        (proc / "7/fdinfo").mkdir()
        (proc / "7/fd/3").symlink_to(file)
        for flags, found in (("0100000", {number: 77}), ("0140000", {}), ("rubbish", {})):
            (proc / "7/fdinfo/3").write_text(f"pos:\t77\nflags:\t{flags}\nmnt_id:\t1\n")
            assert opens.positions({7}, proc) == found


def test_nothing_stays_open(file: Path) -> None:
    """Neither of the files nor of the watch."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with FileOpens([file]):
        assert len(list(Path("/proc/self/fd").iterdir())) == before + 2
    assert len(list(Path("/proc/self/fd").iterdir())) == before
