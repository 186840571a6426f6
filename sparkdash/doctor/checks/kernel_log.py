"""PURE: what the kernel reported of the last day, since the boot, that harms engines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from sparkdash.doctor.check import CheckResult, check, ok, unknown, warn
from sparkdash.doctor.facts import Facts
from sparkdash.host.kernel_log.lines import KernelLine, advice, meaning


@check("kernel-log", "The kernel reported nothing in the last day that harms engines.", kernel=True)
def kernel_log(facts: Facts) -> Iterator[CheckResult]:
    """One finding for each kind of line, and for each Xid."""
    found = facts.kernel_lines()
    if found is None:
        join = f"sudo usermod -aG systemd-journal {facts.path('{user}')}, then log in again"
        yield unknown(
            "The kernel's log is closed to this user: kills for want of memory and GPU faults are missed.", join
        )
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
