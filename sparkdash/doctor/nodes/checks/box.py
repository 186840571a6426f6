"""Checks of each box alone: runtime, memory, disk.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, fail, note, ok, unknown, warn
from sparkdash.doctor.checks.disks import FULL, SCARCE
from sparkdash.doctor.checks.podman import OLDEST
from sparkdash.doctor.facts import meminfo
from sparkdash.doctor.nodes.check import box_check
from sparkdash.doctor.nodes.facts import BoxFacts
from sparkdash.doctor.podman_info import version_numbers
from sparkdash.units import GIB, gib

OLDEST_PYTHON = (3, 9)
"""Oldest python3 that runs the piped scripts; DGX OS 7 has 3.12."""


@box_check("python", "python3 is there, which runs the scripts that are piped to a node.", reads=("python",))
def python(box: BoxFacts) -> Iterator[CheckResult]:
    """Report the version of the interpreter that answered."""
    version = str(box.section("python")["version"])
    if version_numbers(version)[:2] < OLDEST_PYTHON:
        words = ".".join(map(str, OLDEST_PYTHON))
        yield fail(f"python3 is {version}; the piped scripts need {words}.", box.command("sudo apt install python3"))
    else:
        yield ok(f"python3 {version}.")


@box_check("podman", "The container runtime is there and new enough.")
def podman(box: BoxFacts) -> Iterator[CheckResult]:
    """Check the runtime's version."""
    version = box.known().runtime_version
    if box.settings.runtime == "process":
        yield note("The settings run engines as plain processes; podman is not needed.")
    elif version is None:
        package = "podman" if box.settings.runtime == "podman" else "docker.io"
        yield fail(
            f"{box.settings.runtime} is not installed or does not answer.", box.command(f"sudo apt install {package}")
        )
    elif box.settings.runtime == "podman" and version_numbers(version) < OLDEST:
        words = ".".join(map(str, OLDEST))
        yield warn(
            f"podman {version}; sparkdash was run with {words} and newer.", box.command("sudo apt upgrade podman")
        )
    else:
        yield ok(f"{box.settings.runtime} {version}.")


@box_check("memory", "Memory that engines can get.", reads=("memory",))
def memory(box: BoxFacts) -> Iterator[CheckResult]:
    """Compare the available memory with the reserve, below which no engine starts."""
    read = meminfo(str(box.section("memory")["meminfo"]))
    total, available = read.get("MemTotal"), read.get("MemAvailable")
    if total is None or available is None:
        yield unknown("/proc/meminfo has no MemAvailable.")
        return
    about = f"{gib(available)} of {gib(total)} available"
    if available < box.settings.reserve_gib * GIB:
        yield warn(
            f"{about}, and {box.settings.reserve_gib:g} GiB are kept free: no engine starts.",
            box.command("ps -eo rss,pid,comm --sort -rss | head"),
        )
    else:
        yield ok(f"{about} (MemAvailable).")


@box_check("disk", "There is room for images and weights.")
def disk(box: BoxFacts) -> Iterator[CheckResult]:
    """Check the free bytes of the fuller of both file systems."""
    free = box.known().disk_free
    look = box.command("df -h ~ /var/lib/containers; podman image ls")
    if free is None:
        yield unknown("The free space was not told.")
    elif free < FULL:
        yield fail(f"{gib(free)} free: no model fits.", look)
    elif free < SCARCE:
        yield warn(f"{gib(free)} free: a 120B model has about 65 GiB.", look)
    else:
        yield ok(f"{gib(free)} free.")
