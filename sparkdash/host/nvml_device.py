"""First GPU of a box through NVML, NVIDIA's management library. Blocking.

Python 3.10, its standard library and pynvml alone: this box reads its GPU by this module, and `nodes.programs` ships it
to other boxes, pynvml's one file with it. What the driver does not report is None. nvmlDeviceGetMemoryInfo is called
once, for its total alone: a GPU that shares the system's memory, as a GB10's, has none (not supported, or zero), and
only /proc/meminfo has its free memory.
"""

import importlib
from contextlib import suppress
from typing import Any

LOST = frozenset({1, 15, 16})
"""Answers after which the device must be opened anew: uninitialized, GPU is lost, reset required."""

THROTTLE = (
    (0x2, "clock setting"),
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "thermal"),
    (0x40, "hardware thermal"),
    (0x80, "power brake"),
    (0x100, "display clock"),
)
"""NVML's bits for lowered clocks, with our words. Its "idle" (1) is left out, as nothing is held back then."""


class NvmlDevice:
    """First GPU, open. Raises OSError without the driver, or when it has no GPU. One thread at a time may use it."""

    def __init__(self, nvml: Any = None) -> None:
        # 0.1 s of processor time, which a box without a question for its GPU does not spend
        self._nvml = nvml or importlib.import_module("pynvml")
        self._device: Any = None
        try:
            self._nvml.nvmlInit()
            self._device = self._nvml.nvmlDeviceGetHandleByIndex(0)
        except self._nvml.NVMLError as error:
            self.close()
            raise OSError(f"NVML has no GPU: {error}") from None
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        self.own_memory: int | None = (memory.total or None) if memory else None
        """Bytes of memory on the GPU itself; None if it shares the system's memory."""
        self._fixed = {
            "name": self._ask("nvmlDeviceGetName"),
            "driver": self._call("nvmlSystemGetDriverVersion"),
            "sm_clock_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM),
        }

    def gpu(self) -> dict[str, Any]:
        """Read all figures, with the names of `domain.metric.Gpu`. Raises OSError when the GPU is lost."""
        rates, milliwatts = self._ask("nvmlDeviceGetUtilizationRates"), self._ask("nvmlDeviceGetPowerUsage")
        return {
            **self._fixed,
            "utilization": None if rates is None else rates.gpu / 100,
            "power_w": None if milliwatts is None else milliwatts / 1000,
            "temperature_c": self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            "throttle": self._throttle(),
        }

    def processes(self) -> dict[int, int | None] | None:
        """GPU memory by pid, None where it is not reported; None if the driver does not list processes.

        A process with a compute and a graphics context is listed twice with the same memory.
        """
        found: dict[int, int | None] = {}
        lists = [self._ask(f"nvmlDeviceGet{kind}RunningProcesses") for kind in ("Compute", "Graphics")]
        for entry in [entry for entries in lists for entry in entries or ()]:
            before, held = found.get(entry.pid), entry.usedGpuMemory
            found[entry.pid] = before if held is None else max(before or 0, held)
        return None if lists == [None, None] else found

    def close(self) -> None:
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _throttle(self) -> tuple[str, ...]:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:  # drivers before 535 know the call by its older name
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return tuple(word for bit, word in THROTTLE if (bits or 0) & bit)

    def _ask(self, name: str, *rest: object) -> Any:
        return self._call(name, self._device, *rest)

    def _call(self, name: str, *given: object) -> Any:
        try:
            return getattr(self._nvml, name)(*given)
        except self._nvml.NVMLError as error:
            if error.value in LOST:
                raise OSError(f"the GPU is lost ({name}: {error})") from None
            return None
