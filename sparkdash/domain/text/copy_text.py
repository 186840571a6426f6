"""Texts about a copy to another node, shared by the command line and swaps.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.copying import CopyKind, CopyProgress, CopyStep
from sparkdash.units import duration, percent, size


def copy_wait(progress: CopyProgress) -> str:
    """Word what a swap waits for: "weights m to reach spark2: 12 GiB of 61 GiB, 480 MiB/s, 1m40s left"."""
    what = f"{progress.kind} {progress.name}"
    if progress.step is CopyStep.LOAD:
        return f"{what} to be loaded on {progress.node}"
    if progress.step is CopyStep.SAVE:
        return f"{what} to be written to files{_bytes(progress)}"
    if progress.step is CopyStep.CHECK:
        return f"{what} to be compared with {progress.node}{_bytes(progress)}"
    return f"{what} to reach {progress.node}{_bytes(progress)}"


def copy_line(progress: CopyProgress) -> str:
    """Word the step: "send  43 %  26 GiB of 61 GiB  98 MiB/s  6m02s left"."""
    if not progress.total_bytes:
        return _STEPS[progress.step]
    share = percent(progress.came_bytes / progress.total_bytes)
    rate = f"  {size(int(progress.bytes_per_s))}/s" if progress.bytes_per_s else ""
    left = f"  {duration(progress.eta_s)} left" if progress.eta_s is not None else ""
    return (
        f"{_STEPS[progress.step]}  {share:>5}  {size(progress.came_bytes)} of {size(progress.total_bytes)}{rate}{left}"
    )


def copy_share(progress: CopyProgress) -> float | None:
    """Share of the present step, 0..1; None while unknown."""
    return progress.came_bytes / progress.total_bytes if progress.total_bytes else None


def copied_text(progress: CopyProgress) -> str:
    """Word the end of an item's copy."""
    noun = "The image" if progress.kind is CopyKind.IMAGE else "The weights"
    verb = "is" if progress.kind is CopyKind.IMAGE else "are"
    return f"{noun} {progress.name} {verb} on {progress.node}."


_STEPS = {CopyStep.CHECK: "compare", CopyStep.SAVE: "save", CopyStep.SEND: "send", CopyStep.LOAD: "load"}


def _bytes(progress: CopyProgress) -> str:
    if not progress.total_bytes:
        return ""
    rate = f", {size(int(progress.bytes_per_s))}/s" if progress.bytes_per_s else ""
    left = f", {duration(progress.eta_s)} left" if progress.eta_s is not None else ""
    return f": {size(progress.came_bytes)} of {size(progress.total_bytes)}{rate}{left}"
