"""Checks of the box: its kernel, machine and GPU. Pure."""

import re
from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, Readings, check, fail, note, ok, unknown
from sparkdash.domain.metric import Gpu
from sparkdash.telemetry.power import BUSY, CURE, describe_gpu, is_stuck
from sparkdash.units import KIB

OS_RELEASE = "/etc/os-release"
DGX_RELEASE = "/etc/dgx-release"
PRODUCT = "/sys/class/dmi/id/product_name"
_QUOTED = re.compile(r'^(\w+)="?([^"\n]*)"?$', re.MULTILINE)


@check(
    "system",
    "DGX OS on a DGX Spark: images for another processor do not run here.",
    reads=(OS_RELEASE, DGX_RELEASE, PRODUCT),
)
def system(readings: Readings) -> Iterator[CheckResult]:
    named = _values(readings.file(OS_RELEASE)).get("PRETTY_NAME", "an unnamed system")
    about = f"{named}, kernel {readings.kernel}, {readings.machine}"
    if board := (readings.file(PRODUCT) or "").strip():
        about += f", on {board}"
    dgx = _values(readings.file(DGX_RELEASE))
    release = dgx.get("DGX_OTA_VERSION") or dgx.get("DGX_SWBUILD_VERSION")
    if readings.machine != "aarch64":
        yield note(f"{about}: not a DGX Spark, and images made for one do not run here.")
    elif release:
        yield ok(f"DGX OS {release} ({DGX_RELEASE}): {about}.")
    else:
        yield note(f"{about}: not DGX OS ({DGX_RELEASE} is not there).")


def _values(text: str | None) -> dict[str, str]:
    return dict(_QUOTED.findall(text or ""))


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
def driver(readings: Readings) -> Iterator[CheckResult]:
    loaded = loaded_driver(readings.file(MODULE))
    if loaded is None and NVIDIA not in {vendor.strip() for vendor in readings.matching(VENDORS).values()}:
        yield fail(
            f"This box has no NVIDIA GPU (no {NVIDIA} in {VENDORS}).",
            "None here; `sparkdash demo` shows the product without one.",
        )
    elif loaded is None:
        yield fail(
            f"No NVIDIA driver is loaded ({MODULE} is not there).",
            "sudo ubuntu-drivers install, or DGX OS's own update; then reboot",
        )
    elif not readings.looks:
        yield fail(
            f"The driver {loaded} is loaded ({MODULE}), but NVML does not answer: the libraries may be newer.",
            "sudo reboot",
        )
    else:
        yield _answers(loaded, readings.looks[0])


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
def page_size(readings: Readings) -> Iterator[CheckResult]:
    """Warn of drivers 590.44 to 610.43 with 64 KiB pages.

    On a GB10 they fault at the first use of a mapping of 4 GiB or more; 580 does not (open-gpu-kernel-modules#1269).
    """
    size, loaded = f"{readings.page_size // KIB} KiB pages", loaded_driver(readings.file(MODULE))
    if readings.page_size == 4 * KIB:
        yield ok(f"{size}.")
    elif loaded and readings.page_size == 64 * KIB and FAULTY[0] <= int(loaded.partition(".")[0]) <= FAULTY[1]:
        yield fail(
            f"{size} and driver {loaded} ({MODULE}): engines fault on allocations of 4 GiB and more.",
            "Boot the kernel without 64k in its name, or install driver 580.",
        )
    else:
        yield note(
            f"{size} and {f'driver {loaded}' if loaded else 'no driver'} ({MODULE}): DGX OS for a Spark has 4 KiB."
        )


@check("gpu-power", "The GPU is not stuck in its low-power state (busy, slow, and no reason given).", gpu=True)
def power(readings: Readings) -> Iterator[CheckResult]:
    """Use the daemon's longer observation first; of our own readings each must show the state."""
    if readings.daemon is not None and readings.daemon.low_power:
        yield fail("The daemon sees the GPU stuck in the low-power state (/api/state).", CURE)
        return
    if not readings.looks:
        yield unknown("NVML does not answer; see the check driver.")
        return
    last = readings.looks[-1]
    figures = f"{describe_gpu(last)} (NVML)"
    if is_stuck(readings.looks):
        yield fail(f"{figures}: stuck in the low-power state.", CURE)
    elif (last.utilization or 0.0) < BUSY:
        yield ok(f"{figures}; the stuck state shows only while an engine works.")
    else:
        yield ok(f"{figures}.")
