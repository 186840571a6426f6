"""Check of the holders of memory besides our engines, with the command that frees it.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, check, note, ok, unknown, warn
from sparkdash.doctor.facts import Facts, require_read
from sparkdash.domain.memory import GpuMemory, Holder, Holding, MemoryAccount
from sparkdash.units import GIB, gib, size

TOP, LEAST = 6, GIB
"""Number of holders in the summary, and the least that each holds."""
FOREIGN, FOREIGN_COUNT = 2 * GIB, 4
"""Least memory of another program that is noted, and the number of notes."""
LOST = 4 * GIB
"""Least memory without a holder that is reported: an idle driver keeps less."""


@check("memory-holders", "Holders of memory: other programs, GPU memory without a process.", account=True)
def holders(facts: Facts) -> Iterator[CheckResult]:
    """Report the largest holders; `sparkdash memory` has the whole table."""
    found = require_read(facts.account)
    if found is None:
        yield unknown("The account of memory was not read.")
        return
    yield ok(f"{_summary(found)} (`sparkdash memory` has all).")
    yield from _nobodys(found)
    yield from _ownerless(found)
    yield from _other_programs(found)


def _ownerless(found: MemoryAccount) -> Iterator[CheckResult]:
    """Report GPU memory of processes that cannot be seen."""
    for one in found.holdings:
        if one.kind is Holder.UNSEEN and (one.gpu_bytes or 0) >= LEAST:
            look = f"ps -o pid,user,stat,wchan,args -p {one.pid}"
            yield note(f"{one.name} holds {gib(one.gpu_bytes)} of GPU memory: {one.what}.", look)


def _other_programs(found: MemoryAccount) -> Iterator[CheckResult]:
    others = [one for one in found.foreign(FOREIGN) if one.kind is not Holder.UNACCOUNTED]
    for one in others[:FOREIGN_COUNT]:
        yield note(f"{one.name} ({one.kind.value}{_of(one)}) holds {gib(one.bytes)}.", one.remedy)


def _summary(found: MemoryAccount) -> str:
    named = [one for one in found.holdings if one.bytes >= LEAST or one.kind is Holder.FREE]
    rows = [
        *[one for one in named if one.kind is not Holder.FREE][:TOP],
        *[one for one in named if one.kind is Holder.FREE],
    ]
    return f"Of {gib(found.total)}: {', '.join(f'{one.name} {size(one.bytes)}' for one in rows)}"


def _nobodys(found: MemoryAccount) -> Iterator[CheckResult]:
    for one in found.holdings:
        if one.kind is not Holder.UNACCOUNTED or one.bytes < LOST:
            continue
        if found.gpu in (GpuMemory.NONE, GpuMemory.OWN):
            yield note(f"{gib(one.bytes)} are in no process and in none of the kernel's figures: drivers hold them.")
        elif not found.gpu_told:
            yield note(f"The GPU driver or the kernel holds {gib(one.bytes)}; NVML does not report for which process.")
        elif any(other.gpu_bytes for other in found.holdings):
            yield note(
                f"The GPU driver or the kernel holds {gib(one.bytes)} for no process that NVML names: "
                "page-locked memory of running processes, or memory of ended ones.",
                "sparkdash stop; only a reboot frees the rest",
            )
        else:
            yield warn(
                f"The GPU driver or the kernel holds {gib(one.bytes)} for no process: GPU memory of ended processes.",
                "sudo reboot",
            )


def _of(one: Holding) -> str:
    return f" of {one.user}'s" if one.user else ""
