"""MemoryHelper: the installed unit that frees and compacts the box's memory as root.

Rule: it never asks for a password (`sudo -n`), and no caller waits longer than the deadline.
"""

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sparkdash.host.command import CommandResult, run_command

NAME = "sparkdash-memory.service"
UNIT = f"/etc/systemd/system/{NAME}"
RULE = "/etc/sudoers.d/sparkdash-memory"
SYSTEMCTL = "/usr/bin/systemctl"
START = (SYSTEMCTL, "start", NAME)
"""Only command that the rule allows, word for word."""
MARK = "# Written by `sparkdash service install --helper`"

_PLAIN = re.compile(r"[a-z_][a-z0-9_-]*")

# ProtectKernelTunables would make /proc/sys read-only, including the two files. No capability is needed: root owns
# them, mode 0200.
TEXT = f"""{MARK}; the next install writes it anew.
[Unit]
Description=Free and compact the memory before sparkdash loads a model
StartLimitIntervalSec=60
StartLimitBurst=10

[Service]
Type=oneshot
ExecStart=/bin/sync
ExecStart=/bin/sh -c 'echo 3 >/proc/sys/vm/drop_caches'
ExecStart=/bin/sh -c 'echo 1 >/proc/sys/vm/compact_memory'
TimeoutStartSec=60
# It writes these two files and nothing else.
ProtectSystem=strict
ReadOnlyPaths=/proc /sys
ReadWritePaths=/proc/sys/vm/drop_caches /proc/sys/vm/compact_memory
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
PrivateNetwork=yes
RestrictAddressFamilies=none
IPAddressDeny=any
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
UMask=0077
"""
"""Unit (systemd.service(5), systemd.exec(5)). Nothing enables it: only a start runs it."""


_CHECK = f"""for file in {UNIT} {RULE}; do
  if [ -e "$file" ] && ! grep -q '^{MARK}' "$file"; then echo "$file was not written by sparkdash" >&2; exit 1; fi
done
"""
_RELOAD = f"systemctl daemon-reload\nsystemctl reset-failed {NAME} 2>/dev/null || true\n"
REMOVE = f"set -e\n{_CHECK}rm -f {RULE} {UNIT}\n{_RELOAD}"
"""Shell script for root that removes the helper."""


def rule(user: str, uid: int) -> str:
    """Compose the line for sudoers(5); a number replaces a user name that would need quoting."""
    who = user if _PLAIN.fullmatch(user) else f"#{uid}"
    return f"{MARK}.\n{who} ALL=(root) NOPASSWD: {' '.join(START)}\n"


def install_script(user: str, uid: int) -> str:
    """Write the shell script for root that installs the helper for this user; root needs no rule.

    sudo reads no file with a dot in its name, so that a rule which visudo refuses never counts.
    """
    wanted = f"""cat >{RULE}.new <<'END'
{rule(user, uid)}END
chmod 440 {RULE}.new
visudo -cqf {RULE}.new || {{ rm {RULE}.new; exit 1; }}
mv {RULE}.new {RULE}
"""
    unit = f"cat >{UNIT} <<'END'\n{TEXT}END\nchmod 644 {UNIT}\n"
    return f"set -e\numask 077\n{_CHECK}{unit}{wanted if uid else ''}{_RELOAD}"


def ours(text: str) -> bool:
    return text.startswith(MARK)


LIMIT_S = 75.0
"""Longest wait; the unit itself ends after 60 s."""


@dataclass(frozen=True, slots=True)
class HelperResult:
    """Result of one run."""

    ok: bool
    took_s: float
    why: str | None = None
    """Reason of a failed run, in the program's own words; None after success."""


class MemoryHelper:
    """Starter of the unit, for the life of the daemon. `start` runs a command line; only tests give another."""

    def __init__(
        self,
        unit: Path = Path(UNIT),
        *,
        start: Callable[[Sequence[str]], Awaitable[CommandResult]] | None = None,
        uid: int | None = None,
    ) -> None:
        self._unit = unit
        self._start = start or partial(run_command, deadline_s=LIMIT_S)
        self._argv = START if (os.getuid() if uid is None else uid) == 0 else ("sudo", "-n", *START)
        self._under_way: asyncio.Task[HelperResult] | None = None

    def available(self) -> bool:
        """Whether the unit is installed, by one stat; only a start shows whether it is permitted."""
        return self._unit.exists()

    async def run(self) -> HelperResult:
        """Free and compact the memory; concurrent callers share one run. Never raises; takes LIMIT_S at most."""
        if not self.available():
            return HelperResult(ok=False, took_s=0.0, why="The memory helper is not installed.")
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(self._run())
        return await asyncio.shield(self._under_way)

    async def _run(self) -> HelperResult:
        began = time.monotonic()
        why: str | None = None
        try:
            done = await self._start(self._argv)
            if done.code:
                why = (done.err or done.out).strip()[:500] or f"it ended with code {done.code}"
        except TimeoutError:
            why = f"it did not end within {LIMIT_S:.0f} s"
        except OSError as error:
            why = f"{self._argv[0]} cannot be run: {error.strerror or error}"
        return HelperResult(why is None, time.monotonic() - began, why)
