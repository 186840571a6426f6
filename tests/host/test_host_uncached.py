"""Large files that are read or written leave the page cache as they go by."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkdash.host.memory import page_cache
from sparkdash.host.memory.page_cache import WINDOW, Uncached, flush_uncached, read_uncached
from sparkdash.units import MIB

SIZE = 4 * WINDOW


@pytest.fixture
def file() -> Iterator[Path]:
    """A name on a file system that can let go of pages."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder) / "weights"


def cached(file: Path) -> int:
    """Its bytes in memory."""
    with file.open("rb") as opened:
        found = page_cache.cached_bytes(opened.fileno())
    if found is None:
        pytest.skip("this kernel does not count cached pages")
    return found


def test_what_is_read_goes_and_none_of_it_is_missing(file: Path) -> None:
    """While it is read no more than a window is cached, with what the kernel reads ahead."""
    block = os.urandom(MIB)
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


def test_what_is_written_goes_and_none_of_it_is_missing(file: Path) -> None:
    """Window by window, also where the writer goes on where another ended."""
    file.write_bytes(b"begun")
    block = os.urandom(MIB)
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
