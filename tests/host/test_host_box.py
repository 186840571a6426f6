"""Figures of the box: the kernel's, NVML's, the board's power."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from pathlib import Path
from typing import Any

import pynvml
import pytest
from structlog.testing import CapturingLogger

from sparkdash.domain.metric import Gpu
from sparkdash.host.box import AGAIN_S, BoardPower, BoxReader
from sparkdash.host.nvml import NOTHING, Device, Nvml
from sparkdash.host.processes import proc
from sparkdash.telemetry.energy import Power
from sparkdash.telemetry.joins import total_power
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


def sensor(folder: Path, label: str, microwatts: int) -> Path:
    at = folder / "hwmon3"
    at.mkdir(exist_ok=True)
    (at / "power1_label").write_text(f"{label}\n")
    (at / "power1_input").write_text(f"{microwatts}\n")
    return at / "power1_input"


def test_the_boards_sensor_is_found_by_its_label(tmp_path: Path) -> None:
    sensor(tmp_path, "sys_total", 98_400_000)
    assert BoardPower(tmp_path).read() == pytest.approx(98.4)


def test_other_sensors_are_not_the_boards(tmp_path: Path) -> None:
    sensor(tmp_path, "pl1", 140_000_000)
    assert BoardPower(tmp_path).read() is None


def test_a_module_that_is_loaded_later_is_found_and_one_that_goes_is_missed(tmp_path: Path) -> None:
    now = 0.0
    power = BoardPower(tmp_path, lambda: now)
    assert power.read() is None
    file = sensor(tmp_path, "sys_total", 50_000_000)
    assert power.read() is None, "a search a minute would be one too many"
    now = AGAIN_S
    assert power.read() == pytest.approx(50.0)
    file.unlink()
    assert power.read() is None


@pytest.mark.parametrize(
    ("gpu", "others", "power"),
    [
        (None, (), None),
        (Gpu(), (), None),
        (Gpu(power_w=62.0), (), Power(62.0, "GPU only")),
        (Gpu(power_w=62.0, board_power_w=98.0), (), Power(98.0, "whole box")),
        (Gpu(power_w=62.0), (Gpu(power_w=64.0),), Power(126.0, "GPU only, 2 boxes")),
        (Gpu(power_w=62.0, board_power_w=98.0), (Gpu(power_w=64.0),), Power(126.0, "GPU only, 2 boxes")),
        (Gpu(power_w=62.0), (None, Gpu()), Power(62.0, "GPU only")),
    ],
)
def test_the_sensor_of_the_power_is_named(gpu: Gpu | None, others: tuple[Gpu | None, ...], power: Power | None) -> None:
    """One kind of sensor for all boxes, so that the sum means something."""
    assert total_power(gpu, others) == power


def test_a_gb10_tells_everything_but_memory(gb10_nvml: Any) -> None:
    """Figures in our units; throttle reasons as words, without "idle"; memory is asked once, for its total."""
    reading = Device(gb10_nvml).look()
    gpu = reading.gpu
    assert gpu is not None
    assert (gpu.name, gpu.driver) == ("NVIDIA GB10", "580.173.02")
    assert (gpu.utilization, gpu.power_w, gpu.temperature_c) == (0.96, 78.4, 71)
    assert (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz) == (2418, 3003)
    assert gpu.throttle == ("power cap", "thermal")
    assert (reading.own_memory, gb10_nvml.calls["nvmlDeviceGetMemoryInfo"]) == (None, 1)


def test_processes_are_merged_by_the_larger_figure(gb10_nvml: Any) -> None:
    """A pid in both lists counts once; a pid whose memory the driver does not tell is left out."""
    reading = Device(gb10_nvml).look()
    assert reading.processes == {4242: 63931 << 20, 9: 50 << 20}
    assert reading.unmeasured == {7}


def test_not_supported_is_unknown_and_asked_once(gb10_nvml: Any) -> None:
    """A call that is not supported gives None and is not made again."""
    gb10_nvml.failing["nvmlDeviceGetPowerUsage"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    gb10_nvml.failing["nvmlDeviceGetUtilizationRates"] = pynvml.NVML_ERROR_UNKNOWN
    device = Device(gb10_nvml)
    for _ in range(3):
        reading = device.look()
        assert reading.gpu is not None
        assert (reading.gpu.power_w, reading.gpu.utilization) == (None, None)
    assert gb10_nvml.calls["nvmlDeviceGetPowerUsage"] == 1
    assert gb10_nvml.calls["nvmlDeviceGetUtilizationRates"] == 3


def test_one_silent_list_of_processes_is_enough(gb10_nvml: Any) -> None:
    """With one of the two lists the processes are known; with none they are unknown, not empty."""
    gb10_nvml.failing["nvmlDeviceGetGraphicsRunningProcesses"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    device = Device(gb10_nvml)
    assert device.look().processes == {4242: 63931 << 20}
    gb10_nvml.failing["nvmlDeviceGetComputeRunningProcesses"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert device.look().processes is None


def test_an_older_driver_is_asked_by_the_older_name(gb10_nvml: Any) -> None:
    """Before 535 the reasons had another call."""
    gb10_nvml.failing["nvmlDeviceGetCurrentClocksEventReasons"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    reading = Device(gb10_nvml).look()
    assert reading.gpu is not None
    assert reading.gpu.throttle == ("hardware thermal",)


def test_a_lost_gpu_is_opened_again_after_a_pause(gb10_nvml: Any) -> None:
    """After "GPU is lost" readings are empty, and the device is opened anew a minute later."""
    now = 1000.0
    device = Device(gb10_nvml, clock=lambda: now)
    device.look()
    gb10_nvml.failing["nvmlDeviceGetTemperature"] = pynvml.NVML_ERROR_GPU_IS_LOST
    device.look()
    del gb10_nvml.failing["nvmlDeviceGetTemperature"]
    assert device.look() == NOTHING
    now += 61
    assert device.look().gpu is not None
    assert gb10_nvml.calls["nvmlInit"] == 2


async def test_without_the_library_a_reading_costs_nothing(gb10_nvml: Any) -> None:
    """No library: one try, then empty readings without a call; the normal case off a Spark."""
    gb10_nvml.failing["nvmlInit"] = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    nvml = Nvml(gb10_nvml)
    assert [await nvml.read() for _ in range(5)] == [NOTHING] * 5
    assert gb10_nvml.calls["nvmlInit"] == 1
    nvml.close()


async def test_a_driver_that_is_not_loaded_is_tried_again_later(gb10_nvml: Any) -> None:
    """Not loaded yet is no reason to give up, nor to ask every second."""
    gb10_nvml.failing["nvmlInit"] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    now = 0.0
    device = Device(gb10_nvml, clock=lambda: now)
    assert [device.look() for _ in range(3)] == [NOTHING] * 3
    assert (gb10_nvml.calls["nvmlInit"], device.absent) == (1, False)
    del gb10_nvml.failing["nvmlInit"]
    now += 61
    assert device.look().gpu is not None


async def test_a_driver_that_hangs_yields_empty_readings_until_it_returns(
    gb10_nvml: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look gives up at its deadline, later ones at once; one warning; then readings are whole again."""
    log = CapturingLogger()
    monkeypatch.setattr("sparkdash.host.nvml.LOG", log)
    nvml = Nvml(gb10_nvml, deadline_s=0.05)
    gb10_nvml.hang.clear()
    assert await nvml.read() == NOTHING
    nvml._deadline_s = 3600  # who waited now would wait for ever
    assert [await nvml.read() for _ in range(3)] == [NOTHING] * 3
    gb10_nvml.hang.set()
    assert nvml._pending is not None
    await asyncio.to_thread(nvml._pending.result, 10)
    assert (await nvml.read()).gpu is not None
    assert len(log.calls) == 1
    nvml.close()


async def test_closing_releases_the_driver_and_ends_the_thread(gb10_nvml: Any) -> None:
    """close() returns at once; the thread shuts NVML down and ends."""
    nvml = Nvml(gb10_nvml)
    await nvml.read()
    (worker,) = [thread for thread in threading.enumerate() if thread.name == "nvml" and thread.is_alive()][-1:]
    nvml.close()
    await asyncio.to_thread(worker.join, 5)
    assert not worker.is_alive()
    assert gb10_nvml.calls["nvmlShutdown"] == 1


def test_absent_means_for_ever(gb10_nvml: Any) -> None:
    """Only a missing library is final."""
    gb10_nvml.failing["nvmlInit"] = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    device = Device(gb10_nvml, clock=lambda: math.nextafter(math.inf, 0))
    device.look()
    assert device.absent
