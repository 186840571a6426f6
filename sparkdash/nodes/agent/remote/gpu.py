"""GPU figures of a node, through the driver's library (NVML) or `nvidia-smi`.

What the driver does not report is None; a GB10 reports no memory, which is not asked for. Runs on nodes: see `remote`.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkdash.nodes.agent.remote.kernel import Figures

WAIT_S = 0.3
"""Longest wait of a tick for the driver; a reading takes a few milliseconds."""
AGAIN_S = 60.0
"""Pause before a missing or lost driver is tried again."""
SMI_S = 5.0
"""Interval of `nvidia-smi`, each run of which costs some 50 ms of processor time; and the deadline of a run."""
LIBRARY = "libnvidia-ml.so.1"
SM_CLOCK = 1
TEMPERATURE = 0
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

QUERY = "name,driver_version,utilization.gpu,power.draw,temperature.gpu,clocks.sm,clocks.max.sm"


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Driver:
    """First GPU through NVML. Raises OSError without the library, or when it has no GPU."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self._library = load(LIBRARY)
        if self._library.nvmlInit_v2() != 0:
            raise OSError("NVML could not begin")
        self._device = ctypes.c_void_p()
        if self._library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device)) != 0:
            self.close()
            raise OSError("NVML has no GPU")
        self._fixed = {
            "name": self._text("nvmlDeviceGetName", self._device),
            "driver": self._text("nvmlSystemGetDriverVersion"),
            "sm_clock_max_mhz": self._uint("nvmlDeviceGetMaxClockInfo", SM_CLOCK),
        }

    def read(self) -> Figures:
        """Read all figures; `processes` maps pids to bytes of GPU memory. Raises OSError when the GPU is lost."""
        rates = _Rates()
        known = self._ask("nvmlDeviceGetUtilizationRates", ctypes.byref(rates))
        milliwatts = self._uint("nvmlDeviceGetPowerUsage")
        found: Figures = dict(self._fixed)
        found.update(
            utilization=rates.gpu / 100 if known else None,
            power_w=None if milliwatts is None else milliwatts / 1000,
            temperature_c=self._uint("nvmlDeviceGetTemperature", TEMPERATURE),
            sm_clock_mhz=self._uint("nvmlDeviceGetClockInfo", SM_CLOCK),
            throttle=self._throttle(),
            processes=self._processes(),
        )
        if found["utilization"] is None and found["temperature_c"] is None and found["sm_clock_mhz"] is None:
            raise OSError("the GPU answers nothing")
        return found

    def close(self) -> None:
        self._library.nvmlShutdown()

    def _throttle(self) -> list[str]:
        bits = ctypes.c_ulonglong()
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if self._ask(name, ctypes.byref(bits)):
                return [word for bit, word in THROTTLE if bits.value & bit]
        return []

    def _processes(self) -> dict[int, int]:
        """GPU memory by pid. A process with a compute and a graphics context is listed twice with the same memory."""
        found: dict[int, int] = {}
        for kind in ("Compute", "Graphics"):
            count, entries = ctypes.c_uint(PROCESS_LIMIT), (_Process * PROCESS_LIMIT)()
            if self._ask(f"nvmlDeviceGet{kind}RunningProcesses_v3", ctypes.byref(count), entries):
                for entry in entries[: min(count.value, PROCESS_LIMIT)]:
                    if entry.bytes != NOT_AVAILABLE:
                        found[entry.pid] = max(found.get(entry.pid, 0), entry.bytes)
        return found

    def _uint(self, name: str, *which: int) -> int | None:
        value = ctypes.c_uint()
        return value.value if self._ask(name, *which, ctypes.byref(value)) else None

    def _text(self, name: str, *which: object) -> str | None:
        buffer = ctypes.create_string_buffer(96)
        try:
            answered = getattr(self._library, name)(*which, buffer, 96) == 0
        except AttributeError:
            return None
        return buffer.value.decode("utf-8", "replace") if answered else None

    def _ask(self, name: str, *rest: object) -> bool:
        try:
            return bool(getattr(self._library, name)(self._device, *rest) == 0)
        except AttributeError:  # a library older than the call
            return False


def ask_nvidia_smi(run: Callable[..., Any] = subprocess.run) -> Figures:
    program = shutil.which("nvidia-smi")
    if program is None:
        raise OSError("nvidia-smi is missing")
    argv = [program, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=SMI_S)
    except subprocess.SubprocessError as error:
        raise OSError(f"nvidia-smi does not answer: {error}") from None
    words = [word.strip() for word in done.stdout.decode("utf-8", "replace").partition("\n")[0].split(",")]
    if done.returncode != 0 or len(words) != len(QUERY.split(",")):
        raise OSError("nvidia-smi has no figures")
    load = _number(words[2])
    return {
        "name": words[0] or None,
        "driver": words[1] or None,
        "utilization": None if load is None else load / 100,
        "power_w": _number(words[3]),
        "temperature_c": _number(words[4]),
        "sm_clock_mhz": _number(words[5]),
        "sm_clock_max_mhz": _number(words[6]),
        "throttle": [],
        "processes": {},
    }


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:  # [N/A], [Not Supported]
        return None


class GpuReader:
    """GPU of this node, read in a thread of its own. Only tests give `driver` and `smi`."""

    def __init__(self, driver: Callable[[], Driver] = Driver, smi: Callable[[], Figures] = ask_nvidia_smi) -> None:
        self._make, self._smi = driver, smi
        self._driver: Driver | None = None
        self._driver_at = float("-inf")
        self._smi_at = float("-inf")
        self._smi_found: Figures | None = None
        self._thread: threading.Thread | None = None
        self._found: Figures | None = None

    def read(self, now: float) -> Figures | None:
        """Return the GPU's figures; None without a GPU, and while an earlier call hangs."""
        if self._thread is not None and self._thread.is_alive():
            return None
        if self._driver is None and now - max(self._driver_at, self._smi_at) < SMI_S:
            return self._smi_found
        self._found = None
        self._thread = threading.Thread(target=self._work, args=(now,), daemon=True)
        self._thread.start()
        self._thread.join(WAIT_S if self._driver_at > float("-inf") else 4 * WAIT_S)  # the first call loads the library
        return None if self._thread.is_alive() else self._found

    def _work(self, now: float) -> None:
        with suppress(OSError):
            if self._driver is None and now - self._driver_at >= AGAIN_S:
                self._driver_at = now
                self._driver = self._make()
        if self._driver is not None:
            try:
                self._found = self._driver.read()
            except OSError:
                self._driver.close()
                self._driver = None
            return
        self._smi_at, self._smi_found = now, None
        with suppress(OSError):
            self._smi_found = self._found = self._smi()
