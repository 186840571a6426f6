"""pynvml as it answers on a GB10."""

import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

from pynvml import NVMLError

from sparkdash.host.nvml_device import NvmlDevice

NOT_SUPPORTED, NOT_LOADED, FUNCTION_NOT_FOUND, GPU_IS_LOST = 3, 9, 13, 15


class FakeNvml:
    """Memory is not supported, processes are told, every call is counted. `missing`: calls that the driver lacks."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.failing: dict[str, int] = {"nvmlDeviceGetMemoryInfo": NOT_SUPPORTED}
        self.missing: set[str] = set()
        self.hang = threading.Event()
        self.hang.set()
        self.answers: dict[str, Any] = {
            "nvmlDeviceGetName": "NVIDIA GB10",
            "nvmlSystemGetDriverVersion": "580.173.02",
            "nvmlDeviceGetMaxClockInfo": 3003,
            "nvmlDeviceGetPowerUsage": 78_400,
            "nvmlDeviceGetTemperature": 71,
            "nvmlDeviceGetClockInfo": 2418,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x1 | 0x4 | 0x20,
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x40,
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=96),
            "nvmlDeviceGetComputeRunningProcesses": _entries((4242, 63931 << 20), (7, None)),
            "nvmlDeviceGetGraphicsRunningProcesses": _entries((4242, 100 << 20), (9, 50 << 20)),
        }

    def open(self) -> NvmlDevice:
        return NvmlDevice(self)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self._answer(name)

    def _answer(self, name: str) -> Any:
        self.calls[name] += 1
        self.hang.wait(30)
        if name in self.missing or name in self.failing:
            raise NVMLError(self.failing.get(name, FUNCTION_NOT_FOUND))
        return self.answers.get(name)


def _entries(*held: tuple[int, int | None]) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in held]
