"""First GPU of a box through NVML, NVIDIA's management library, by ctypes. Blocking.

Standard library alone, Python 3.10: this box reads its GPU by this module, and `nodes.programs` ships it to other boxes.
What the driver does not report is None. nvmlDeviceGetMemoryInfo is called once, for its total alone: a GPU that shares
the system's memory, as a GB10's, has none (not supported, or zero), and only /proc/meminfo has its free memory.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LIBRARY = "libnvidia-ml.so.1"
SM_CLOCK = 1
TEMPERATURE = 0
LOST = frozenset({1, 15, 16})
"""Answers after which the device must be opened anew: uninitialized, GPU is lost, reset required."""
NOT_AVAILABLE = 2**64 - 1
"""Memory of a process that the driver does not report."""
PROCESS_LIMIT = 256

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


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class NvmlDevice:
    """First GPU, open. Raises OSError without the library, or when it has no GPU. One thread at a time may use it."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self._library = load(LIBRARY)
        if self._library.nvmlInit_v2() != 0:
            raise OSError("NVML could not begin")
        self._device = ctypes.c_void_p()
        if self._library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device)) != 0:
            self.close()
            raise OSError("NVML has no GPU")
        memory = _Memory()
        self.own_memory = memory.total or None if self._ask("nvmlDeviceGetMemoryInfo", ctypes.byref(memory)) else None
        """Bytes of memory on the GPU itself; None if it shares the system's memory."""
        self._fixed = {
            "name": self._text("nvmlDeviceGetName", self._device),
            "driver": self._text("nvmlSystemGetDriverVersion"),
            "sm_clock_max_mhz": self._uint("nvmlDeviceGetMaxClockInfo", SM_CLOCK),
        }

    def gpu(self) -> dict[str, Any]:
        """Read all figures, with the names of `domain.metric.Gpu`. Raises OSError when the GPU is lost."""
        rates = _Rates()
        known = self._ask("nvmlDeviceGetUtilizationRates", ctypes.byref(rates))
        milliwatts = self._uint("nvmlDeviceGetPowerUsage")
        return {
            **self._fixed,
            "utilization": rates.gpu / 100 if known else None,
            "power_w": None if milliwatts is None else milliwatts / 1000,
            "temperature_c": self._uint("nvmlDeviceGetTemperature", TEMPERATURE),
            "sm_clock_mhz": self._uint("nvmlDeviceGetClockInfo", SM_CLOCK),
            "throttle": self._throttle(),
        }

    def processes(self) -> dict[int, int | None] | None:
        """GPU memory by pid, None where it is not reported; None if the driver does not list processes.

        A process with a compute and a graphics context is listed twice with the same memory.
        """
        found: dict[int, int | None] = {}
        listed = False
        for kind in ("Compute", "Graphics"):
            count, entries = ctypes.c_uint(PROCESS_LIMIT), (_Process * PROCESS_LIMIT)()
            if self._ask(f"nvmlDeviceGet{kind}RunningProcesses_v3", ctypes.byref(count), entries):
                listed = True
                for entry in entries[: min(count.value, PROCESS_LIMIT)]:
                    before = found.get(entry.pid)
                    found[entry.pid] = before if entry.bytes == NOT_AVAILABLE else max(before or 0, entry.bytes)
        return found if listed else None

    def close(self) -> None:
        self._library.nvmlShutdown()

    def _throttle(self) -> tuple[str, ...]:
        bits = ctypes.c_ulonglong()
        # drivers before 535 know the call by its older name
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if self._ask(name, ctypes.byref(bits)):
                return tuple(word for bit, word in THROTTLE if bits.value & bit)
        return ()

    def _uint(self, name: str, *which: int) -> int | None:
        value = ctypes.c_uint()
        return value.value if self._ask(name, *which, ctypes.byref(value)) else None

    def _text(self, name: str, *which: object) -> str | None:
        buffer = ctypes.create_string_buffer(96)
        answered = getattr(self._library, name)(*which, buffer, 96) == 0
        return buffer.value.decode("utf-8", "replace") if answered else None

    def _ask(self, name: str, *rest: object) -> bool:
        try:
            code = getattr(self._library, name)(self._device, *rest)
        except AttributeError:  # a library older than the call
            return False
        if code in LOST:
            raise OSError(f"the GPU is lost ({name}: {code})")
        return bool(code == 0)
