"""PURE: who holds the box's memory besides our engines, and what frees it."""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, check, note, ok, unknown, warn
from sparkdash.doctor.facts import Facts, told
from sparkdash.domain.memory.account import GpuMemory, Holder, Holding, MemoryAccount
from sparkdash.units import GIB, MIB, gib, size

TOP, LEAST = 6, GIB
"""Holders that the summary names, and the least that they hold."""
FOREIGN, FOREIGN_COUNT = 2 * GIB, 4
"""Somebody else's memory is worth a note from this size on, of so many."""
LOST = 4 * GIB
"""Memory that nobody names from which it is worth a word: a driver that serves nobody keeps less."""
LEFT = 64 * MIB


@check("memory-holders", "Who holds memory: others' programs, leftovers, the GPU for nobody.", account=True)
def holders(facts: Facts) -> Iterator[CheckResult]:
    """`sparkdash memory` has the whole table."""
    found = told(facts.account)
    if found is None:
        yield unknown("Nobody told who holds the memory.")
        return
    yield ok(f"{_summary(found)} (`sparkdash memory` has all).")
    yield from _nobodys(found)
    for one in found.holdings:
        if one.kind is Holder.LEFTOVER and one.bytes >= LEFT:
            yield _leftover(one)
        elif one.kind is Holder.UNSEEN and (one.gpu_bytes or 0) >= LEAST:
            look = f"ps -o pid,user,stat,wchan,args -p {one.pid}"
            yield note(f"{one.name} holds {gib(one.gpu_bytes)} of GPU memory: {one.what}.", look)
    others = [one for one in found.foreign(FOREIGN) if one.kind not in (Holder.LEFTOVER, Holder.UNACCOUNTED)]
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
            yield note(f"{gib(one.bytes)} are held by the GPU driver or the kernel; NVML does not tell for whom.")
        elif any(other.gpu_bytes for other in found.holdings):
            yield note(
                f"{gib(one.bytes)} are held by the GPU driver or the kernel for no process that NVML names: page-locked memory "
                "of those that run, or memory of processes that ended.",
                "sparkdash stop; what stays then, only a reboot returns",
            )
        else:
            yield warn(
                f"{gib(one.bytes)} are held by the GPU driver or the kernel for no process: GPU memory of processes that ended.",
                "sudo reboot",
            )


def _leftover(one: Holding) -> CheckResult:
    about = f"{one.name} holds {size(one.bytes)} of {one.user}'s: {one.what}."
    return warn(about, one.remedy) if one.remedy else note(about)


def _of(one: Holding) -> str:
    return f" of {one.user}'s" if one.user else ""
