"""GPU figures through NVML, NVIDIA's management library.

On a GB10 many calls answer "not supported", which is remembered and not asked again. nvmlDeviceGetMemoryInfo is called
once, for its total alone: a GPU that shares the system's memory has none (not supported, or zero), and only
/proc/meminfo has its free memory. Without the library a reading costs nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import ModuleType
from typing import Any

import structlog

from sparkdash.domain.metric import Gpu
from sparkdash.host.reader import GpuReading

LOG = structlog.get_logger("sparkdash.nvml")

DEADLINE_S = 0.8
"""Longest wait for one reading (about ten calls, a few ms together), within a tick of telemetry."""
RETRY_S = 60.0
"""Pause before another try after a missing or lost driver."""
NOTHING = GpuReading(gpu=None)

_THROTTLE = (
    ("nvmlClocksEventReasonApplicationsClocksSetting", "clock setting"),
    ("nvmlClocksEventReasonSwPowerCap", "power cap"),
    ("nvmlClocksEventReasonHwSlowdown", "hardware slowdown"),
    ("nvmlClocksEventReasonSyncBoost", "sync boost"),
    ("nvmlClocksEventReasonSwThermalSlowdown", "thermal"),
    ("nvmlClocksEventReasonHwThermalSlowdown", "hardware thermal"),
    ("nvmlClocksEventReasonHwPowerBrakeSlowdown", "power brake"),
    ("nvmlClocksEventReasonDisplayClockSetting", "display clock"),
)
"""NVML's reasons for lowered clocks, with our words. Its "idle" is left out, as nothing is held back then."""

_FINAL = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND", "NVML_ERROR_NO_PERMISSION")
"""Answers that last as long as the driver, so that the call is not repeated."""
_LOST = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_UNINITIALIZED", "NVML_ERROR_RESET_REQUIRED")
"""Answers after which the device must be reopened."""


class Device:
    """First GPU, read synchronously. Not thread-safe: one thread owns it. `library` is pynvml or a test's stand-in."""

    def __init__(self, library: ModuleType, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml: Any = library
        self._clock = clock
        self._handle: Any = None
        self._again_at = -math.inf
        self._unsupported: set[tuple[object, ...]] = set()
        self._fixed: dict[str, Any] = {}
        self._own_memory: int | None = None

    @property
    def absent(self) -> bool:
        """Whether this box has no NVML, which holds for the life of this process."""
        return self._again_at == math.inf

    def look(self) -> GpuReading:
        """Read all figures at once; None for those that the driver does not report."""
        if not self._open():
            return NOTHING
        gpu, entries = self._gpu(), self._entries()
        return GpuReading(
            gpu,
            processes=None if entries is None else _largest(entries),
            own_memory=self._own_memory,
            unmeasured=frozenset(entry.pid for entry in entries or () if entry.usedGpuMemory is None),
        )

    def close(self) -> None:
        if self._handle is not None:
            self._handle = None
            self._nvml.nvmlShutdown()

    def _open(self) -> bool:
        if self._handle is not None:
            return True
        if self._clock() < self._again_at:
            return False
        try:
            self._nvml.nvmlInit()
            self._handle = self._nvml.nvmlDeviceGetHandleByIndex(0)
        except self._nvml.NVMLError as error:
            no_library = error.value == self._nvml.NVML_ERROR_LIBRARY_NOT_FOUND
            self._again_at = math.inf if no_library else self._clock() + RETRY_S
            return False
        self._unsupported.clear()
        self._fixed = {
            "name": _text(self._ask("nvmlDeviceGetName")),
            "driver": _text(self._guarded("nvmlSystemGetDriverVersion")),
            "sm_clock_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM),
        }
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        self._own_memory = memory.total if memory is not None and memory.total else None
        return self._handle is not None

    def _gpu(self) -> Gpu:
        rates = self._ask("nvmlDeviceGetUtilizationRates")
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        return Gpu(
            utilization=None if rates is None else rates.gpu / 100,
            power_w=None if milliwatts is None else milliwatts / 1000,
            temperature_c=self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            throttle=self._throttle(),
            **self._fixed,
        )

    def _throttle(self) -> tuple[str, ...]:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # drivers before 535 know the call by its older name
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return tuple(word for name, word in _THROTTLE if (bits or 0) & getattr(self._nvml, name))

    def _entries(self) -> list[Any] | None:
        """List processes on the GPU; None if the driver does not report them.

        A process with a compute and a graphics context is listed twice with the same memory.
        """
        lists = [
            self._ask("nvmlDeviceGetComputeRunningProcesses"),
            self._ask("nvmlDeviceGetGraphicsRunningProcesses"),
        ]
        known = [entries for entries in lists if entries is not None]
        return [entry for entries in known for entry in entries] if known else None

    def _ask(self, getter: str, *rest: object) -> Any:
        return None if self._handle is None else self._guarded(getter, self._handle, *rest)

    def _guarded(self, getter: str, *args: object) -> Any:
        question = (getter, *args[1:])
        if question in self._unsupported:
            return None
        try:
            return getattr(self._nvml, getter)(*args)
        except self._nvml.NVMLError as error:
            if error.value in self._codes(_FINAL):
                self._unsupported.add(question)
            elif error.value in self._codes(_LOST):
                self._handle, self._again_at = None, self._clock() + RETRY_S
            return None

    def _codes(self, names: tuple[str, ...]) -> set[int]:
        return {getattr(self._nvml, name) for name in names}


class Nvml:
    """Device in a daemon thread of its own, so that a hanging call blocks neither the loop nor the exit."""

    def __init__(self, library: ModuleType | None = None, *, deadline_s: float = DEADLINE_S) -> None:
        self._library = library
        self._deadline_s = deadline_s
        self._device: Device | None = None
        self._asked: queue.SimpleQueue[Future[GpuReading] | None] = queue.SimpleQueue()
        self._pending: Future[GpuReading] | None = None
        self._thread: threading.Thread | None = None

    async def read(self) -> GpuReading:
        """Read the GPU; empty without NVML, and while an earlier call hangs."""
        if (self._device and self._device.absent) or (self._pending and not self._pending.done()):
            return NOTHING
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="nvml", daemon=True)
            self._thread.start()
        self._pending = Future()
        self._asked.put(self._pending)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._pending), self._deadline_s)
        except TimeoutError:
            LOG.warning("NVML does not answer; GPU figures are unknown until then", seconds=self._deadline_s)
            return NOTHING

    def close(self) -> None:
        if self._thread is not None:
            self._asked.put(None)

    def _work(self) -> None:
        device = self._device = Device(self._library or importlib.import_module("pynvml"))
        while (future := self._asked.get()) is not None:
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(device.look())
            except Exception as error:  # noqa: BLE001 - handed to the caller; the thread must live on
                future.set_exception(error)
        device.close()


def _largest(entries: Iterable[Any]) -> dict[int, int]:
    largest: dict[int, int] = {}
    for entry in entries:
        if entry.usedGpuMemory is not None:
            largest[entry.pid] = max(largest.get(entry.pid, 0), entry.usedGpuMemory)
    return largest


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
