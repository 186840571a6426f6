"""Checks of the NVIDIA driver, of the page size, and of the GPU's low-power state.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, check, fail, note, ok, unknown
from sparkdash.doctor.facts import Facts
from sparkdash.domain.metric import Gpu
from sparkdash.telemetry import gpu_power
from sparkdash.units import KIB

MODULE = "/proc/driver/nvidia/version"
VENDORS, NVIDIA = "/sys/bus/pci/devices/*/vendor", "0x10de"
SPARK_GPU = "GB10"
FAULTY = (590, 610)
"""First and last driver branch that faulted with pages of 64 KiB."""

_VERSION = re.compile(r"\s(\d{3}\.\d+(?:\.\d+)?)\s")


def loaded_driver(module: str | None) -> str | None:
    """Parse the driver version in /proc/driver/nvidia/version; None without a loaded driver."""
    first = (module or "").partition("\n")[0]
    found = _VERSION.search(f"{first} ")
    return found[1] if found else None


@check("driver", "The NVIDIA driver is loaded and answers.", reads=(MODULE, VENDORS), gpu=True)
def driver(facts: Facts) -> Iterator[CheckResult]:
    """Compare the kernel module's own version with NVML's answer."""
    loaded = loaded_driver(facts.file(MODULE))
    if loaded is None and NVIDIA not in {vendor.strip() for vendor in facts.matching(VENDORS).values()}:
        yield fail(
            f"This box has no NVIDIA GPU (no {NVIDIA} in {VENDORS}).",
            "None here; `sparkdash demo` shows the product without one.",
        )
    elif loaded is None:
        yield fail(
            f"No NVIDIA driver is loaded ({MODULE} is not there).",
            "sudo ubuntu-drivers install, or DGX OS's own update; then reboot",
        )
    elif not facts.looks:
        yield fail(
            f"The driver {loaded} is loaded ({MODULE}), but NVML does not answer: the libraries may be newer.",
            "sudo reboot",
        )
    else:
        yield _answers(loaded, facts.looks[0])


def _answers(loaded: str, gpu: Gpu) -> CheckResult:
    name = gpu.name or "the GPU"
    if gpu.driver not in (None, loaded):
        return fail(
            f"The kernel has driver {loaded} ({MODULE}), the libraries are of {gpu.driver} (NVML).", "sudo reboot"
        )
    if SPARK_GPU not in name:
        return note(f"{name}, driver {loaded} ({MODULE}): not the {SPARK_GPU} of a DGX Spark.")
    return ok(f"{name}, driver {loaded} ({MODULE}, NVML).")


@check("page-size", "Memory is in pages that the driver maps well.", reads=(MODULE,))
def page_size(facts: Facts) -> Iterator[CheckResult]:
    """Warn of drivers 590.44 to 610.43 with 64 KiB pages.

    On a GB10 they fault at the first use of a mapping of 4 GiB or more; 580 does not (open-gpu-kernel-modules#1269).
    """
    size, loaded = f"{facts.page_size // KIB} KiB pages", loaded_driver(facts.file(MODULE))
    if facts.page_size == 4 * KIB:
        yield ok(f"{size}.")
    elif loaded and facts.page_size == 64 * KIB and FAULTY[0] <= int(loaded.partition(".")[0]) <= FAULTY[1]:
        yield fail(
            f"{size} and driver {loaded} ({MODULE}): engines fault on allocations of 4 GiB and more.",
            "Boot the kernel without 64k in its name, or install driver 580.",
        )
    else:
        yield note(
            f"{size} and {f'driver {loaded}' if loaded else 'no driver'} ({MODULE}): DGX OS for a Spark has 4 KiB."
        )


@check("gpu-power", "The GPU is not stuck in its low-power state (busy, slow, and no reason given).", gpu=True)
def power(facts: Facts) -> Iterator[CheckResult]:
    """Use the daemon's longer observation first; of our own readings each must show the state."""
    if facts.daemon is not None and facts.daemon.low_power:
        yield fail("The daemon sees the GPU stuck in the low-power state (/api/state).", gpu_power.CURE)
        return
    if not facts.looks:
        yield unknown("NVML does not answer; see the check driver.")
        return
    last = facts.looks[-1]
    figures = f"{gpu_power.describe_gpu(last)} (NVML)"
    if gpu_power.is_stuck(facts.looks):
        yield fail(f"{figures}: stuck in the low-power state.", gpu_power.CURE)
    elif (last.utilization or 0.0) < gpu_power.BUSY:
        yield ok(f"{figures}; the stuck state shows only while an engine works.")
    else:
        yield ok(f"{figures}.")
