"""Figures of the box: the kernel's memory and its free blocks, NVML's, the board's power."""

import os
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import GPU_IS_LOST, NOT_LOADED, NOT_SUPPORTED, FakeNvml
from hypothesis import given
from hypothesis import strategies as st
from logs import capture_logs

from sparkdash.domain.memory import Contiguity
from sparkdash.domain.metric import Gpu
from sparkdash.host import meminfo
from sparkdash.host.box import AGAIN_S, NOTHING, BoardPower, BoxReader, GpuReading, Nvml
from sparkdash.host.memory import contiguity
from sparkdash.host.processes import proc
from sparkdash.telemetry.derive import total_power
from sparkdash.telemetry.power import Power
from sparkdash.units import GIB, KIB, MIB


async def test_an_engine_holds_its_gpu_and_its_own_host_memory(gb10_proc: Path, gb10_nvml: Any) -> None:
    """On a GB10: NVML's figure plus anonymous and shared host memory; file pages are page cache and left out."""
    reader = BoxReader(gb10_proc, Nvml(gb10_nvml.open))
    reading = await reader.gpu()
    assert reader.engine_bytes({4242}, reading) == 63931 * MIB + (3145728 + 1024) * KIB
    assert reader.engine_bytes({4242}, NOTHING) == (3145728 + 1024) * KIB
    assert reader.engine_bytes(set(), NOTHING) is None
    assert reader.engine_bytes({999}, NOTHING) is None


async def test_others_hold_their_gpu_and_their_anonymous_memory(gb10_proc: Path, gb10_nvml: Any) -> None:
    """All processes but the engine's: shared pages, which would count in each, threads of the kernel and the gone are left out."""
    for pid, text in (("7", "Name:\tdesktop\nRssAnon:\t 500 kB\nRssShmem:\t 9000 kB\n"), ("2", "Name:\tkthreadd\n")):
        (gb10_proc / pid).mkdir()
        (gb10_proc / pid / "status").write_text(text)
    (gb10_proc / "8").mkdir()
    reader = BoxReader(gb10_proc, Nvml(gb10_nvml.open))
    reading = await reader.gpu()
    assert await reader.others_bytes({4242}, reading) == 50 * MIB + 500 * KIB
    assert await reader.others_bytes({7}, reading) == (63931 + 50) * MIB + 3145728 * KIB
    assert await reader.others_bytes({7}, NOTHING) == 3145728 * KIB


async def test_this_box() -> None:
    reader = BoxReader()
    assert reader.memory().total > 0
    assert (reader.engine_bytes({os.getpid()}, NOTHING) or 0) > MIB
    reading = await reader.gpu()
    assert reading.gpu is None or reading.gpu.name


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
    assert proc.reads([7], tmp_path) == {}
    (tmp_path / "7/io").write_text("rchar: 1000\nwchar: 1\nread_bytes: 400\n")
    assert proc.taken_in([7], tmp_path) == {7: 2 * MIB + 1001}
    assert proc.reads([6, 7], tmp_path) == {7: (1000, 400)}


def sensor(folder: Path, label: str, microwatts: int) -> Path:
    at = folder / "hwmon3"
    at.mkdir(exist_ok=True)
    (at / "power1_label").write_text(f"{label}\n")
    (at / "power1_input").write_text(f"{microwatts}\n")
    return at / "power1_input"


def test_the_boards_sensor_is_found_by_its_label_when_its_module_is_loaded_and_missed_when_it_goes(
    tmp_path: Path,
) -> None:
    now = 0.0
    sensor(tmp_path, "pl1", 140_000_000)
    power = BoardPower(tmp_path, lambda: now)
    assert power.read() is None
    file = sensor(tmp_path, "sys_total", 50_000_000)
    assert power.read() is None, "a search a minute would be one too many"
    now = AGAIN_S
    assert power.read() == pytest.approx(50.0)
    file.unlink()
    assert power.read() is None


@pytest.mark.parametrize(("gpu", "others", "power"), [
    (None, (), None), (Gpu(), (), None), (Gpu(power_w=62.0), (), Power(62.0, "GPU only")),
    (Gpu(power_w=62.0, board_power_w=98.0), (), Power(98.0, "whole box")),
    (Gpu(power_w=62.0), (Gpu(power_w=64.0),), Power(126.0, "GPU only, 2 boxes")),
    (Gpu(power_w=62.0, board_power_w=98.0), (Gpu(power_w=64.0),), Power(126.0, "GPU only, 2 boxes")),
    (Gpu(power_w=62.0), (None, Gpu()), Power(62.0, "GPU only")),
])  # fmt: skip
def test_the_sensor_of_the_power_is_named(gpu: Gpu | None, others: tuple[Gpu | None, ...], power: Power | None) -> None:
    """One kind of sensor for all boxes, so that the sum means something."""
    assert total_power(gpu, others) == power


def look(nvml: FakeNvml) -> GpuReading:
    return Nvml(nvml.open)._look()


def test_a_gb10_tells_everything_but_memory(gb10_nvml: FakeNvml) -> None:
    nvml = Nvml(gb10_nvml.open)
    reading = [nvml._look() for _ in range(2)][-1]
    assert reading.gpu == Gpu(
        name="NVIDIA GB10", driver="580.173.02", utilization=0.96, power_w=78.4, temperature_c=71, sm_clock_mhz=2418,
        sm_clock_max_mhz=3003, throttle=("power cap", "thermal"),
    )  # fmt: skip
    assert (reading.own_memory, gb10_nvml.calls["nvmlDeviceGetMemoryInfo"]) == (None, 1)
    assert reading.processes == {4242: 63931 << 20, 9: 50 << 20}
    assert reading.unmeasured == {7}


def test_figures_that_the_driver_does_not_support_are_unknown(gb10_nvml: FakeNvml) -> None:
    gb10_nvml.failing |= dict.fromkeys(("nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates"), NOT_SUPPORTED)
    gpu = look(gb10_nvml).gpu
    assert (gpu.power_w, gpu.utilization, gpu.temperature_c) == (None, None, 71)


def test_one_silent_list_of_processes_is_enough(gb10_nvml: FakeNvml) -> None:
    gb10_nvml.failing["nvmlDeviceGetGraphicsRunningProcesses"] = NOT_SUPPORTED
    assert look(gb10_nvml).processes == {4242: 63931 << 20}
    gb10_nvml.failing["nvmlDeviceGetComputeRunningProcesses"] = NOT_SUPPORTED
    assert look(gb10_nvml).processes is None


def test_an_older_library_is_asked_by_the_older_name(gb10_nvml: FakeNvml) -> None:
    """Before 535 the reasons had another call."""
    gb10_nvml.missing.add("nvmlDeviceGetCurrentClocksEventReasons")
    assert look(gb10_nvml).gpu.throttle == ("hardware thermal",)


@pytest.mark.parametrize(
    ("call", "code"), [("nvmlDeviceGetTemperature", GPU_IS_LOST), ("nvmlInit", NOT_LOADED)], ids=["lost", "absent"]
)
async def test_a_driver_without_a_gpu_costs_nothing_and_is_tried_again_after_a_pause(
    gb10_nvml: FakeNvml, call: str, code: int
) -> None:
    now = 1000.0
    nvml = Nvml(gb10_nvml.open, clock=lambda: now)
    gb10_nvml.failing[call] = code
    assert [await nvml.read() for _ in range(3)] == [NOTHING] * 3
    assert gb10_nvml.calls["nvmlInit"] == 1
    del gb10_nvml.failing[call]
    now += 61
    assert (await nvml.read()).gpu is not None


async def test_a_driver_that_hangs_yields_empty_readings_until_it_returns(gb10_nvml: FakeNvml) -> None:
    nvml = Nvml(gb10_nvml.open, deadline_s=0.05)
    gb10_nvml.hang.clear()
    with capture_logs() as lines:
        assert await nvml.read() == NOTHING
        nvml._deadline_s = 3600  # who waited now would wait for ever
        assert [await nvml.read() for _ in range(3)] == [NOTHING] * 3
        gb10_nvml.hang.set()
        assert nvml._pending is not None
        await nvml._pending
        assert (await nvml.read()).gpu is not None
    assert len(lines) == 1


def test_a_gb10(gb10_proc: Path) -> None:
    found = meminfo.read_memory(gb10_proc)
    assert found.total / GIB == pytest.approx(121.69, abs=0.01)
    assert found.available == 54525952 * KIB
    assert found.free == 2904064 * KIB
    assert found.page_cache == (53477376 + 2097152 - 1048576) * KIB
    assert (found.swap_total, found.swap_used) == (16777212 * KIB, 524288 * KIB)
    assert found.pressure == pytest.approx(0.025)


def test_no_swap_is_zero_and_what_is_not_told_is_unknown(gb10_proc: Path) -> None:
    text = (gb10_proc / "meminfo").read_text()
    (gb10_proc / "meminfo").write_text(text.replace("16777212", "0").replace("16252924", "0"))
    (gb10_proc / "pressure/memory").unlink()
    found = meminfo.read_memory(gb10_proc)
    assert (found.swap_total, found.swap_used, found.pressure) == (0, 0, None)
    (gb10_proc / "meminfo").write_text("MemTotal: 10 kB\nMemFree: 1 kB\nMemAvailable: 5 kB\n")
    found = meminfo.read_memory(gb10_proc)
    assert (found.page_cache, found.swap_total, found.swap_used) == (None, None, None)


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
    return contiguity.parse_contiguity(files["/proc/buddyinfo"], files["/proc/vmstat"], page)


@pytest.mark.parametrize(("name", "blocks"), [
    ("gb10-fresh", 782), ("gb10-7-days", 0), ("gb10-after-drop", 0), ("gb10-serving-fresh-boot", 0),
    ("gb10-serving", 0), ("x86-6.18", 2095 * 4 // 32), ("gb10-64k-pages", 20 + 12 * 2 + 6 * 4 + 3 * 8 + 100 * 16),
    ("two-nodes", (800 + 80) * 4 // 32),
])  # fmt: skip
def test_free_blocks_of_32_mib_are_counted_in_zone_normal_of_all_nodes(name: str, blocks: int) -> None:
    """Columns are counted: x86 ends at 4 MiB, of which eight count as one; with 64 KiB pages larger blocks count as several."""
    assert parsed(name).blocks == blocks


def test_memory_in_small_pieces_is_free_and_in_no_block() -> None:
    found = parsed("gb10-serving")
    assert found.free_bytes > 6 * GIB
    assert (found.free_2m_bytes, found.free_32m_bytes) == (0, 0)


def test_without_a_zone_normal_every_zone_but_movable_counts() -> None:
    """A small box has DMA32 alone."""
    found = contiguity.parse_contiguity(
        "Node 0, zone DMA32 0 0 0 0 0 0 0 0 0 0 16\nNode 0, zone Movable 0 0 0 0 0 0 0 0 0 0 99\n", "", 4096
    )
    assert (found.blocks, found.free_32m_bytes) == (2, 64 * MIB)


@pytest.mark.parametrize("text", [
    "", "nothing of use\n", "Node 0, zone\n", "Node 0, zone Normal\n", "Node 0, zone Normal 1 x 3\n", "zone zone zone 1",
])  # fmt: skip
def test_a_file_of_another_shape_is_not_known(text: str) -> None:
    assert contiguity.parse_contiguity(text, "", 4096) is None


@given(st.text(), st.text())
def test_no_text_whatever_raises(buddyinfo: str, vmstat: str) -> None:
    contiguity.parse_contiguity(buddyinfo, vmstat, 4096)
    contiguity.parse_contiguity(f"Node 0, zone   Normal {buddyinfo}", vmstat, 65536)


def test_a_box_without_the_file_is_not_known(tmp_path: Path) -> None:
    assert contiguity.read_contiguity(tmp_path) is None
    (tmp_path / "buddyinfo").write_text(recorded("gb10-fresh")[0]["/proc/buddyinfo"])
    found = contiguity.read_contiguity(tmp_path)
    assert (found.blocks > 0, found.compact_stall) == (True, None)


def test_this_kernel_tells_its_own() -> None:
    found = contiguity.read_contiguity()
    if found is None:
        pytest.skip("this kernel has no /proc/buddyinfo")
    assert 0 <= found.free_32m_bytes <= found.free_2m_bytes <= found.free_bytes
