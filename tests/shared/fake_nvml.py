"""NVIDIA's library (NVML) as a GB10 answers it, for readers by ctypes."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from typing import Any

from sparkdash.host.nvml_device import NOT_AVAILABLE, NvmlDevice

NOT_SUPPORTED, NOT_LOADED, GPU_IS_LOST = 3, 9, 15


class FakeNvml:
    """Memory is not supported, processes are told, every call is counted. `missing`: calls that the library lacks."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.failing: dict[str, int] = {"nvmlDeviceGetMemoryInfo": NOT_SUPPORTED}
        self.missing: set[str] = set()
        self.hang = threading.Event()
        self.hang.set()
        self.numbers = {
            "nvmlDeviceGetMaxClockInfo": 3003,
            "nvmlDeviceGetPowerUsage": 78_400,
            "nvmlDeviceGetTemperature": 71,
            "nvmlDeviceGetClockInfo": 2418,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x1 | 0x4 | 0x20,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
        }
        self.texts = {"nvmlDeviceGetName": b"NVIDIA GB10", "nvmlSystemGetDriverVersion": b"580.173.02"}
        self.processes = {
            "nvmlDeviceGetComputeRunningProcesses_v3": [(4242, 63931 << 20), (7, NOT_AVAILABLE)],
            "nvmlDeviceGetGraphicsRunningProcesses_v3": [(4242, 100 << 20), (9, 50 << 20)],
        }

    def open(self) -> NvmlDevice:
        """Open the device, as with the real library."""
        return NvmlDevice(lambda _: self)

    def __getattr__(self, name: str) -> Any:
        if name in self.missing:
            raise AttributeError(name)
        return lambda *given: self._answer(name, [getattr(each, "_obj", each) for each in given])

    def _answer(self, name: str, given: list[Any]) -> int:
        self.calls[name] += 1
        self.hang.wait(30)
        if name in self.failing:
            return self.failing[name]
        if name in self.numbers:
            given[-1].value = self.numbers[name]
        elif name in self.texts:
            next(each for each in given if isinstance(each, ctypes.Array)).value = self.texts[name]
        elif name in self.processes:
            given[1].value = len(self.processes[name])
            for entry, (pid, size) in zip(given[2], self.processes[name], strict=False):
                entry.pid, entry.bytes = pid, size
        elif name == "nvmlDeviceGetUtilizationRates":
            given[1].gpu = 96
        return 0
