"""The kernel's memory figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkdash.errors import HostError
from sparkdash.host import meminfo
from sparkdash.units import GIB, KIB


def test_a_gb10(gb10_proc: Path) -> None:
    """Every figure from /proc/meminfo, and PSI as a share."""
    found = meminfo.read_memory(gb10_proc)
    assert found.total / GIB == pytest.approx(121.69, abs=0.01)
    assert found.available == 54525952 * KIB
    assert found.free == 2904064 * KIB
    assert found.page_cache == (53477376 + 2097152 - 1048576) * KIB
    assert (found.swap_total, found.swap_used) == (16777212 * KIB, 524288 * KIB)
    assert found.pressure == pytest.approx(0.025)


def test_no_swap_is_zero_and_no_psi_is_unknown(gb10_proc: Path) -> None:
    """A box without swap has 0 of it; a kernel without PSI leaves pressure unknown."""
    text = (gb10_proc / "meminfo").read_text()
    (gb10_proc / "meminfo").write_text(text.replace("16777212", "0").replace("16252924", "0"))
    (gb10_proc / "pressure/memory").unlink()
    found = meminfo.read_memory(gb10_proc)
    assert (found.swap_total, found.swap_used, found.pressure) == (0, 0, None)


def test_fields_that_are_not_told_are_unknown(gb10_proc: Path) -> None:
    """Without swap and cache lines those are None, never 0."""
    (gb10_proc / "meminfo").write_text("MemTotal: 10 kB\nMemFree: 1 kB\nMemAvailable: 5 kB\n")
    found = meminfo.read_memory(gb10_proc)
    assert (found.page_cache, found.swap_total, found.swap_used) == (None, None, None)


def test_no_meminfo(tmp_path: Path) -> None:
    """A box that is not Linux gets an error that says so."""
    with pytest.raises(HostError) as caught:
        meminfo.read_memory(tmp_path)
    assert caught.value.code == "no_meminfo"
    assert "Linux" in (caught.value.hint or "")


def test_this_box() -> None:
    """The real /proc gives sane figures."""
    found = meminfo.read_memory()
    assert 0 < found.free <= found.total
    assert 0 < found.available <= found.total


def test_in_words(gb10_proc: Path) -> None:
    """What was measured, and the waiting for memory only where there was some."""
    words = "Then 52.0 GiB of 121.7 GiB of memory were available"
    assert meminfo.describe_memory(gb10_proc) == f"{words}, and 2 % of the last 10 s were lost in waiting for memory."
    (gb10_proc / "pressure/memory").unlink()
    assert meminfo.describe_memory(gb10_proc) == f"{words}."
    (gb10_proc / "meminfo").unlink()
    assert meminfo.describe_memory(gb10_proc) == ""
