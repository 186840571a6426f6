"""Check of the memory helper, the only part of sparkdash that root installs.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, check, note, ok, unknown, warn
from sparkdash.doctor.facts import Facts
from sparkdash.host.memory.helper import NAME, START, TEXT, UNIT, ours

SHOWN = ("systemctl", "show", NAME, "--property=LoadState,ActiveState,Result,ExecMainStatus")
INSTALL = "`sparkdash service install --helper` shows what it writes, and the command for it."


@check(
    "memory-helper",
    "The unit that frees and compacts memory before a load that fragmented memory would stop.",
    reads=(UNIT,),
    runs=(SHOWN,),
)
def memory_helper(facts: Facts) -> Iterator[CheckResult]:
    """Check the unit's file and its last run; the sudo rule is in a folder that only root may read."""
    unit = facts.file(UNIT)
    if unit is None:
        yield note(f"not installed ({UNIT} is not there): a load into fragmented memory is refused.", INSTALL)
        return
    if not ours(unit):
        yield note(f"{UNIT} was not written by sparkdash; it is started as it is.")
    elif unit != TEXT:
        yield note(f"{UNIT} is of another version of sparkdash.", INSTALL)
    done = facts.ran(SHOWN)
    if done is None or done.code:
        yield unknown(f"{UNIT} exists, but systemd does not answer.")
        return
    told = dict(line.partition("=")[::2] for line in done.out.splitlines())
    if told.get("LoadState") != "loaded":
        yield warn(f"{UNIT} exists, but systemd has not read it.", "sudo systemctl daemon-reload")
    elif told.get("ActiveState") == "failed":
        how = f"{told.get('Result')}, code {told.get('ExecMainStatus')}"
        yield warn(f"{NAME} failed the last time ({how}).", f"journalctl -u {NAME} -n 20")
    else:
        start = " ".join(START)
        yield ok(f"installed ({UNIT}); `sudo -n {start}` tries it, and drops the kernel's caches.")
