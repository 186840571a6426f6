"""Checks of the disks for weights and compiled kernels.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, check, fail, ok, warn
from sparkdash.doctor.checks.podman import MOUNTS, REMOTE
from sparkdash.doctor.facts import Facts, file_system
from sparkdash.units import GIB, gib

HOME, CACHE = "{hf_home}", "{cache_dir}"
FULL, SCARCE = 5 * GIB, 80 * GIB
"""Bytes for any model, and for a large one: a 120B model in four bits has about 65 GiB."""
CACHE_FULL = 5 * GIB


@check("weights", "There is room for weights (hf_home), on a disk of this box.", reads=(MOUNTS,), disks=(HOME,))
def weights(facts: Facts) -> Iterator[CheckResult]:
    """Check free bytes and the type of the file system."""
    disk, where = facts.disk(HOME), facts.path(HOME)
    kind = file_system(where, facts.file(MOUNTS) or "")
    about = f"{gib(disk.free)} of {gib(disk.total)} free in {where} ({kind or 'unknown file system'})"
    if kind in REMOTE:
        yield warn(
            f"Weights are on a network file system: {about}; loads take many times longer.",
            "Set hf_home in config.toml to a folder on a disk of this box.",
        )
    elif disk.free < FULL:
        yield fail(f"{about}: no model fits.", "`hf cache ls` shows what could go; or hf_home in config.toml.")
    elif disk.free < SCARCE:
        yield warn(f"{about}: a 120B model has about 65 GiB.", "`hf cache ls` shows what could go.")
    else:
        yield ok(f"{about}.")


@check("cache", "There is room for what engines compile (cache_dir).", disks=(CACHE,))
def cache(facts: Facts) -> Iterator[CheckResult]:
    """Check the space for compiled kernels and graphs: a few GiB for each image."""
    disk, where = facts.disk(CACHE), facts.path(CACHE)
    if disk.free < CACHE_FULL:
        yield warn(f"{gib(disk.free)} free in {where}: engines compile anew at every start.", f"du -sh {where}/*")
    else:
        yield ok(f"{gib(disk.free)} free in {where}.")
