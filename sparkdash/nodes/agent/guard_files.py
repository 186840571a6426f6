"""Files through which the daemon and a node's memory guard speak: the lease, the lock, and what the guard did.

All files are lost with the boot. Runs on nodes, with the standard library of Python 3.10 alone.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkdash.host.kernel_figures import Figures

LEASE = "lease.json"
LOCK = "lock"
KILL = "kill-"
KILLS_LIMIT = 20
SIZE_LIMIT = 256 * 1024


def seconds_since_boot() -> float:
    """Seconds since boot, with the time that the box was suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class GuardFolder:
    """Folder of one owner's guard: in /run for root, in /tmp for others. Raises OSError when another user has it."""

    def __init__(self, owner: str, base: str | None = None) -> None:
        user = os.getuid()
        above = base or ("/run" if user == 0 and os.access("/run", os.W_OK) else "/tmp")  # noqa: S108 - checked below
        self.path = f"{above}/sparkdash-guard-{user}-{owner}"
        with suppress(FileExistsError):
            os.mkdir(self.path, 0o700)
        found = os.lstat(self.path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
            raise OSError(f"{self.path} is not a private folder of this user")

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def changed_at(self, name: str) -> int:
        """Return the time of the last change of a file, in ns; 0 if it is missing."""
        try:
            return os.stat(self.file(name)).st_mtime_ns
        except OSError:
            return 0

    def read(self, name: str) -> dict[str, Any] | None:
        try:
            with open(self.file(name), "rb") as file:
                found = json.loads(file.read(SIZE_LIMIT))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write a JSON object, whole or not at all. Raises OSError."""
        fresh = self.file(f".{name}.{os.getpid()}")
        try:
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                json.dump(value, file)
            os.rename(fresh, self.file(name))
        except OSError:
            self.remove(f".{name}.{os.getpid()}")
            raise

    def remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self.file(name))

    def renew(self, lease: dict[str, Any]) -> None:
        """Write the lease with the time of now, by this box's own clock. Raises OSError."""
        self.write(LEASE, {**lease, "renewed": seconds_since_boot()})

    def kill_names(self) -> list[str]:
        return sorted(name for name in os.listdir(self.path) if name.startswith(KILL))

    def report_kill(self, report: dict[str, Any]) -> None:
        """Keep a report until the daemon has read it. Raises OSError."""
        name = f"{KILL}{int(seconds_since_boot() * 1000):015d}-{os.getpid()}.json"
        self.write(name, {**report, "id": name})
        for old in self.kill_names()[:-KILLS_LIMIT]:
            self.remove(old)

    def kills(self) -> list[Figures]:
        return [found for name in self.kill_names() if (found := self.read(name)) is not None]

    def forget_kill(self, name: str) -> None:
        if name in self.kill_names():
            self.remove(name)

    def lock(self, wait_s: float) -> int | None:
        """Take the lock that only one guard holds, for the life of this process; None if another guard has it."""
        held = os.open(self.file(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() >= until:
                    os.close(held)
                    return None
                time.sleep(0.05)  # `is_locked` holds it for a moment
            else:
                return held

    def is_locked(self) -> bool:
        try:
            held = os.open(self.file(LOCK), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(held)
        return False
