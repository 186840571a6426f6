"""Files in the page cache: counted, dropped, read beside it; and who has them open."""

import ctypes
import hashlib
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from copied_trees import cached_model

from sparkdash.domain.profile import ModelRef
from sparkdash.host import local_weights
from sparkdash.host.inotify import FileOpens, OpenReport
from sparkdash.host.memory import page_cache
from sparkdash.host.memory.page_cache import WINDOW, Uncached, flush_uncached, read_uncached
from sparkdash.units import MIB


def resident(file: Path) -> int:
    """Pages of the file that are in memory: mincore(2), as fincore(1) does it."""
    libc, size = ctypes.CDLL(None, use_errno=True), file.stat().st_size
    pages = -(-size // mmap.PAGESIZE)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        seen, start = (ctypes.c_ubyte * pages)(), ctypes.c_ubyte.from_buffer(mapped)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), seen)
        del start
    assert not failed, os.strerror(ctypes.get_errno())
    return sum(flag & 1 for flag in seen)


def test_the_files_of_a_model_are_its_weights_links_followed(tmp_path: Path) -> None:
    """In the cache a snapshot's names are links to blobs; of a path, a folder's weights or all parts of one file."""
    place = cached_model(tmp_path, "org/m", {"config.json": b"{}", "m-Q4_K_M.gguf": b"4", "m-Q8_0.gguf": b"8"})
    four, eight = ((place / "snapshots/c0ffee" / name).resolve() for name in ("m-Q4_K_M.gguf", "m-Q8_0.gguf"))
    assert local_weights.weight_files_of(ModelRef(hf="org/m"), tmp_path) == {four, eight}
    assert local_weights.weight_files_of(ModelRef(hf="org/m:q8_0"), tmp_path) == {eight}
    assert local_weights.weight_files_of(ModelRef(hf="org/other"), tmp_path) == frozenset()
    parts = {tmp_path / f"w-0000{n}-of-00002.gguf" for n in (1, 2)}
    for part in parts:
        part.write_text("x")
    (tmp_path / "tokenizer.json").write_text("x")
    assert local_weights.weight_files_of(ModelRef(path=str(min(parts))), tmp_path) == parts
    assert local_weights.weight_files_of(ModelRef(path=str(tmp_path)), tmp_path) >= parts
    assert tmp_path / "tokenizer.json" not in local_weights.weight_files_of(ModelRef(path=str(tmp_path)), tmp_path)
    assert local_weights.weight_files_of(ModelRef(path=str(tmp_path / "none.gguf")), tmp_path) == frozenset()


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder on a file system that can let go of pages; none in memory can."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def cached_file(path: Path, size: int = 4 * MIB) -> Path:
    path.write_bytes(os.urandom(size))
    with path.open("rb+") as opened:
        os.fsync(opened.fileno())
    path.read_bytes()
    return path


def cached(file: Path) -> int:
    with file.open("rb") as opened:
        found = page_cache.cached_bytes(opened.fileno())
    if found is None:
        pytest.skip("this kernel does not count cached pages")
    return found


def test_files_are_forgotten_until_enough_is_let_go(on_disk: Path) -> None:
    first, second, third = (cached_file(on_disk / name) for name in ("a", "b", "c"))
    if page_cache.forget(first) and cached(first):
        pytest.skip("this file system keeps its pages")
    assert page_cache.forget_up_to([first, on_disk / "gone", second, third], 3 * MIB, limit_s=5) == 4 * MIB
    assert [resident(file) * mmap.PAGESIZE for file in (first, second, third)] == [0, 0, 4 * MIB]
    assert cached(third) == 4 * MIB


def test_what_cannot_be_counted_is_not_made_up(on_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's file can be forgotten, and not counted. Without time nothing is advised."""
    file = cached_file(on_disk / "a")
    monkeypatch.setattr(page_cache, "cached_bytes", lambda _descriptor: None)
    assert page_cache.forget_up_to([file], MIB, limit_s=5) is None
    assert page_cache.forget_up_to([file], MIB, limit_s=0) == 0


SIZE = 4 * WINDOW


def test_what_is_read_goes_and_none_of_it_is_missing(on_disk: Path) -> None:
    file, block = on_disk / "weights", os.urandom(MIB)
    file.write_bytes(block * (SIZE // MIB) + b"end")
    flush_uncached(file)
    assert cached(file) == 0
    found, most = hashlib.sha256(), 0
    for number, piece in enumerate(read_uncached(file)):
        found.update(piece)
        if number % 16 == 0:
            most = max(most, cached(file))
    assert found.hexdigest() == hashlib.sha256(block * (SIZE // MIB) + b"end").hexdigest()
    assert most <= WINDOW + 32 * MIB
    assert cached(file) == 0


def test_what_is_written_goes_and_none_of_it_is_missing(on_disk: Path) -> None:
    file, block = on_disk / "weights", os.urandom(MIB)
    file.write_bytes(b"begun")
    with file.open("ab") as opened:
        written = Uncached(opened)
        most = 0
        for _ in range(SIZE // MIB):
            written.write(block)
            most = max(most, cached(file))
        written.flush()
        assert written.tell() == SIZE + 5
    assert most <= WINDOW + 2 * MIB
    flush_uncached(file)
    assert cached(file) == 0
    assert file.read_bytes() == b"begun" + block * (SIZE // MIB)


def test_the_disks_rate_is_that_of_a_file_that_nobody_has_in_memory(
    on_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of one that an engine has mapped, which would come from memory; the rate is kept for first loads."""
    monkeypatch.setattr(page_cache, "LEAST_BYTES", MIB)
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(tmp_path / "new"))
    mapped, free, small = on_disk / "mapped.gguf", on_disk / "free.gguf", on_disk / "small.gguf"
    for file, size in ((mapped, 4 * MIB), (free, 2 * MIB), (small, 4096)):
        cached_file(file, size)
    cached(mapped)  # skips where the kernel cannot tell
    assert page_cache.kept_disk_rate() is None
    with mapped.open("rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as pages:
        assert sum(pages[:: mmap.PAGESIZE]) >= 0  # touched, so that the kernel may not drop them
        found = page_cache.measure_disk_rate(on_disk.iterdir())
    assert (found.file, found.bytes) == (str(free), 2 * MIB)
    assert page_cache.kept_disk_rate() == pytest.approx(found.bytes / found.s)
    assert page_cache.measure_disk_rate([small]) is None


READ = "import sys; f = open(sys.argv[1], 'rb', 0); f.read(int(sys.argv[2])); print(flush=True); sys.stdin.read()"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "w.gguf"
    made.write_bytes(b"w" * 12_345)
    return made


def test_an_open_and_its_end_are_told_and_its_position_between(file: Path, tmp_path: Path, new_child: Any) -> None:
    def reader(size: int) -> subprocess.Popen[str]:
        """A process that has read so much and holds the file open."""
        return new_child(sys.executable, "-c", READ, str(file), str(size), stdin=subprocess.PIPE)

    with FileOpens([file, tmp_path / "gone"]) as opens:
        ((number, size),) = opens.sizes.items()
        assert size == 12_345
        assert list(opens.reports()) == []
        first = reader(5_000)
        assert list(opens.reports()) == [OpenReport(number, opened=True)]
        assert opens.positions({first.pid}) == {number: 5_000}
        slower = reader(4_000)
        assert opens.positions({first.pid, slower.pid, 2**22 + 1}) == {number: 4_000}
        assert opens.positions(set()) == {}
        for each in (first, slower):
            each.communicate()
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
    before = len(list(Path("/proc/self/fd").iterdir()))
    with FileOpens([file]):
        assert len(list(Path("/proc/self/fd").iterdir())) == before + 2
    assert len(list(Path("/proc/self/fd").iterdir())) == before
