"""The box's memory and its free blocks, as the kernel tells them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.memory import Contiguity
from sparkdash.errors import HostError
from sparkdash.host import meminfo
from sparkdash.host.memory import contiguity
from sparkdash.units import GIB, KIB, MIB


def test_a_gb10(gb10_proc: Path) -> None:
    found = meminfo.read_memory(gb10_proc)
    assert found.total / GIB == pytest.approx(121.69, abs=0.01)
    assert found.available == 54525952 * KIB
    assert found.free == 2904064 * KIB
    assert found.page_cache == (53477376 + 2097152 - 1048576) * KIB
    assert (found.swap_total, found.swap_used) == (16777212 * KIB, 524288 * KIB)
    assert found.pressure == pytest.approx(0.025)


def test_no_swap_is_zero_and_no_psi_is_unknown(gb10_proc: Path) -> None:
    text = (gb10_proc / "meminfo").read_text()
    (gb10_proc / "meminfo").write_text(text.replace("16777212", "0").replace("16252924", "0"))
    (gb10_proc / "pressure/memory").unlink()
    found = meminfo.read_memory(gb10_proc)
    assert (found.swap_total, found.swap_used, found.pressure) == (0, 0, None)


def test_fields_that_are_not_told_are_unknown(gb10_proc: Path) -> None:
    (gb10_proc / "meminfo").write_text("MemTotal: 10 kB\nMemFree: 1 kB\nMemAvailable: 5 kB\n")
    found = meminfo.read_memory(gb10_proc)
    assert (found.page_cache, found.swap_total, found.swap_used) == (None, None, None)


def test_no_meminfo(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        meminfo.read_memory(tmp_path)
    assert caught.value.code == "no_meminfo"
    assert "Linux" in (caught.value.hint or "")


def test_this_box() -> None:
    found = meminfo.read_memory()
    assert 0 < found.free <= found.total
    assert 0 < found.available <= found.total


def test_in_words(gb10_proc: Path) -> None:
    words = "Then 52.0 GiB of 121.7 GiB of memory were available"
    assert meminfo.describe_memory(gb10_proc) == f"{words}, and 2 % of the last 10 s were lost in waiting for memory."
    (gb10_proc / "pressure/memory").unlink()
    assert meminfo.describe_memory(gb10_proc) == f"{words}."
    (gb10_proc / "meminfo").unlink()
    assert meminfo.describe_memory(gb10_proc) == ""


RECORDED = Path(__file__).parent.parent / "data/contiguity"


def recorded(name: str) -> tuple[dict[str, str], int]:
    """The files of one recording by path, and its page size."""
    head, *parts = (RECORDED / f"{name}.txt").read_text().split("== ")
    files = {path: text for path, _, text in (part.partition("\n") for part in parts)}
    return files, int(head.partition("# page: ")[2])


def parsed(name: str) -> Contiguity:
    files, page = recorded(name)
    found = contiguity.parse_contiguity(files["/proc/buddyinfo"], files["/proc/vmstat"], page)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("gb10-fresh", 782),
        ("gb10-7-days", 0),
        ("gb10-after-drop", 0),
        ("gb10-serving-fresh-boot", 0),
        ("gb10-serving", 0),
        ("x86-6.18", 2095 * 4 // 32),
        ("gb10-64k-pages", 20 + 12 * 2 + 6 * 4 + 3 * 8 + 100 * 16),
        ("two-nodes", (800 + 80) * 4 // 32),
    ],
)
def test_free_blocks_of_32_mib_are_counted_in_zone_normal_of_all_nodes(name: str, blocks: int) -> None:
    """Columns are counted: x86 ends at 4 MiB, of which eight count as one; with 64 KiB pages larger blocks count as several."""
    assert parsed(name).blocks == blocks


def test_memory_in_small_pieces_is_free_and_in_no_block() -> None:
    """As on a box that wedged: gigabytes free, nothing of 2 MiB."""
    found = parsed("gb10-serving")
    assert found.free_bytes > 6 * GIB
    assert (found.free_2m_bytes, found.free_32m_bytes) == (0, 0)


def test_without_a_zone_normal_every_zone_but_movable_counts() -> None:
    """A small box has DMA32 alone."""
    found = contiguity.parse_contiguity(
        "Node 0, zone DMA32 0 0 0 0 0 0 0 0 0 0 16\nNode 0, zone Movable 0 0 0 0 0 0 0 0 0 0 99\n", "", 4096
    )
    assert found is not None
    assert (found.blocks, found.free_32m_bytes) == (2, 64 * MIB)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing of use\n",
        "Node 0, zone\n",
        "Node 0, zone Normal\n",
        "Node 0, zone Normal 1 x 3\n",
        "zone zone zone 1",
    ],
)
def test_a_file_of_another_shape_is_not_known(text: str) -> None:
    assert contiguity.parse_contiguity(text, "", 4096) is None


@given(st.text(), st.text())
def test_no_text_whatever_raises(buddyinfo: str, vmstat: str) -> None:
    """Other people's kernels say what they like."""
    contiguity.parse_contiguity(buddyinfo, vmstat, 4096)
    contiguity.parse_contiguity(f"Node 0, zone   Normal {buddyinfo}", vmstat, 65536)


def test_a_box_without_the_file_is_not_known(tmp_path: Path) -> None:
    assert contiguity.read_contiguity(tmp_path) is None
    (tmp_path / "buddyinfo").write_text(recorded("gb10-fresh")[0]["/proc/buddyinfo"])
    found = contiguity.read_contiguity(tmp_path)
    assert found is not None
    assert (found.blocks > 0, found.compact_stall) == (True, None)


def test_this_kernel_tells_its_own() -> None:
    """The real files of the machine that runs the test."""
    found = contiguity.read_contiguity()
    if found is None:
        pytest.skip("this kernel has no /proc/buddyinfo")
    assert 0 <= found.free_32m_bytes <= found.free_2m_bytes <= found.free_bytes
