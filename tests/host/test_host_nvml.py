"""NVML: a GB10, no GPU at all, and a driver that hangs."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import pynvml
import pytest
from structlog.testing import CapturingLogger

from sparkdash.host.nvml import NOTHING, Device, Nvml


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
