"""MemoryHelper: the installed unit that frees and compacts the box's memory as root.

Rule: it never asks for a password (`sudo -n`), and no caller waits longer than the deadline.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sparkdash.errors import HostError
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


@dataclass(frozen=True, slots=True)
class HelperFile:
    """File of the helper, with its path, content and mode."""

    path: str
    text: str
    mode: int


def rule(user: str, uid: int) -> str:
    """Compose the line for sudoers(5); a number replaces a user name that would need quoting."""
    who = user if _PLAIN.fullmatch(user) else f"#{uid}"
    return f"{MARK}.\n{who} ALL=(root) NOPASSWD: {' '.join(START)}\n"


def files(user: str, uid: int) -> tuple[HelperFile, ...]:
    """Files to install for this user; root needs no rule."""
    unit = HelperFile(UNIT, TEXT, 0o644)
    return (unit,) if uid == 0 else (unit, HelperFile(RULE, rule(user, uid), 0o440))


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


BOX = Path("/")
INSTALL_S = 60.0


def install(files: Sequence[HelperFile], root: Path = BOX, *, force: bool = False) -> list[str]:
    """Write the files below `root`, reload systemd's units if that is this box, and return the paths.

    Raises HostError: as `uninstall`, and no_sudo, rule_invalid.
    """
    _refuse(root)
    wants_sudo = any(file.path == RULE for file in files)
    if root == BOX and wants_sudo and shutil.which("sudo") is None:
        raise HostError("The helper is started by sudo, which is not installed.", code="no_sudo", hint="Install sudo.")
    places = {_at(root, file.path): file for file in files}
    _refuse_foreign_files(list(places), force=force)
    _replace_all(places, root)
    _reload(root)
    return [file.path for file in files]


def _replace_all(places: Mapping[Path, HelperFile], root: Path) -> None:
    """Write every file under a new name first, so that a failure leaves all old ones."""
    try:
        for place, file in places.items():
            _write(_fresh(place), file)
        for place in places:
            _fresh(place).replace(place)
    except OSError as error:
        raise _unusable(root, error) from None
    finally:
        for place in places:
            _fresh(place).unlink(missing_ok=True)


def uninstall(root: Path = BOX, *, force: bool = False) -> list[str]:
    """Remove both files below `root`, the rule first, and return their paths.

    Raises HostError: needs_root, unit_not_ours (without `force`), folder_unusable, systemctl_failed.
    """
    _refuse(root)
    there = [path for path in (RULE, UNIT) if _at(root, path).exists()]
    _refuse_foreign_files([_at(root, path) for path in there], force=force)
    for path in there:
        try:
            _at(root, path).unlink()
        except OSError as error:
            raise _unusable(_at(root, path), error) from None
    if there:
        _reload(root)
    return there


def _at(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _refuse(root: Path) -> None:
    if root == BOX and os.geteuid() != 0:
        raise HostError(
            "Only root may do this; nothing was changed.", code="needs_root", hint="Type the command that is shown."
        )


def _refuse_foreign_files(places: Sequence[Path], *, force: bool) -> None:
    for place in places:
        try:
            is_foreign = place.exists() and not ours(place.read_text(errors="replace"))
        except OSError as error:
            raise _unusable(place, error) from None
        if is_foreign and not force:
            raise HostError(
                f"{place} was not written by sparkdash.",
                code="unit_not_ours",
                hint="Look at it first; `--force` replaces or removes it all the same.",
            )


def _fresh(place: Path) -> Path:
    return place.with_name(f"{place.name}.new")


def _write(fresh: Path, file: HelperFile) -> None:
    fresh.parent.mkdir(parents=True, exist_ok=True)
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(file.text)
    fresh.chmod(file.mode)
    if file.path == RULE:
        _check_rule(fresh)


def _check_rule(file: Path) -> None:
    if (visudo := shutil.which("visudo")) is None:
        return
    command = [visudo, "-c", "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode:
        raise HostError(
            f"visudo refuses the rule: {(done.stderr or done.stdout).strip()}", code="rule_invalid", hint="Report this."
        )


def _reload(root: Path) -> None:
    if root != BOX or not Path("/run/systemd/system").is_dir():  # a systemd that begins later reads the unit then
        return
    for words in (("daemon-reload",), ("reset-failed", NAME)):
        try:
            done = subprocess.run([SYSTEMCTL, *words], capture_output=True, text=True, timeout=INSTALL_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostError(f"`systemctl {words[0]}` failed: {error}.", code="systemctl_failed") from None
        if done.returncode and words[0] == "daemon-reload":
            said = (done.stderr or done.stdout).strip().rstrip(".")
            raise HostError(f"`systemctl {words[0]}` failed: {said}.", code="systemctl_failed")


def _unusable(place: Path, error: OSError) -> HostError:
    return HostError(f"{error.filename or place} cannot be used: {error.strerror or error}.", code="folder_unusable")
