"""PURE: the memory helper, the one thing of sparkdash that root installs."""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, check, note, ok, unknown, warn
from sparkdash.doctor.facts import Facts
from sparkdash.host.memory_helper.unit_files import NAME, START, TEXT, UNIT, ours

SHOWN = ("systemctl", "show", NAME, "--property=LoadState,ActiveState,Result,ExecMainStatus")
INSTALL = "`sparkdash service install --helper` shows what it writes, and the command for it."


@check(
    "memory-helper",
    "The unit that frees and compacts memory before a load that fragmented memory would stop.",
    reads=(UNIT,),
    runs=(SHOWN,),
)
def memory_helper(facts: Facts) -> Iterator[CheckResult]:
    """Its file, and how systemd says its last run ended. The rule for sudo is in a folder that only root may read."""
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
        yield unknown(f"{UNIT} is there, and systemd does not tell of it.")
        return
    told = dict(line.partition("=")[::2] for line in done.out.splitlines())
    if told.get("LoadState") != "loaded":
        yield warn(f"{UNIT} is there, and systemd has not read it.", "sudo systemctl daemon-reload")
    elif told.get("ActiveState") == "failed":
        how = f"{told.get('Result')}, code {told.get('ExecMainStatus')}"
        yield warn(f"{NAME} failed the last time ({how}).", f"journalctl -u {NAME} -n 20")
    else:
        start = " ".join(START)
        yield ok(f"installed ({UNIT}); `sudo -n {start}` tries it, and drops what the kernel has cached.")
