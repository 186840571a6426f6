"""Check of the kernel's log: lines of the last day, since the boot, about faults that harm engines.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from sparkdash.doctor.check import CheckResult, check, ok, unknown, warn
from sparkdash.doctor.facts import Facts
from sparkdash.host.kernel_lines import KernelLine, advice, meaning


@check("kernel-log", "The kernel reported nothing in the last day that harms engines.", kernel=True)
def kernel_log(facts: Facts) -> Iterator[CheckResult]:
    """Yield a finding for each kind of line, and for each Xid."""
    found = facts.kernel_lines()
    if found is None:
        join = f"sudo usermod -aG systemd-journal {facts.path('{user}')}, then log in again"
        yield unknown("This user may not read the kernel's log: out-of-memory kills and GPU faults are missed.", join)
        return
    by_kind: dict[object, list[KernelLine]] = {}
    for line in found.lines:
        if not line.is_harmless:
            by_kind.setdefault((line.kind, line.xid), []).append(line)
    for lines in by_kind.values():
        yield warn(_told(lines, found.counts.get(lines[-1].kind, 0)), advice(lines[-1]))
    if not by_kind:
        yield ok("No out-of-memory kill, GPU fault or stuck task in the last day (kernel log).")


def _told(lines: list[KernelLine], counted: int) -> str:
    last = lines[-1]
    count = counted if last.xid is None else len(lines)
    at = datetime.fromtimestamp(last.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    words = meaning(last)
    often = "" if count == 1 else f", {count} times in the last day"
    return f"{words[0].upper()}{words[1:]}; last at {at}{often} (kernel log)."
