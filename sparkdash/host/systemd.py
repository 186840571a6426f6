"""The user's systemd, through systemctl.

Owns: the folder of user units, calling systemctl with a deadline, and the meaning of refusals. Must not know a unit's
content.
"""

from __future__ import annotations

import getpass
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sparkdash.errors import HostError

LINGER = Path("/var/lib/systemd/linger")
LIMIT_S = 240.0
"""Longest wait for systemctl, which returns when the daemon is ready, after its look for engines."""

_NO_MANAGER = ("failed to connect to bus", "has not been booted with systemd", "no medium found")


def unit_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Folder of the user's own units (systemd.unit(5))."""
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def lingers() -> bool | None:
    """Whether this user's services outlive the last logout; None without systemd's list."""
    if not LINGER.parent.is_dir():
        return None
    return (LINGER / getpass.getuser()).exists()


def systemctl(*words: str) -> str:
    """Run `systemctl --user WORDS` and return its output.

    Raises:
        HostError: code `no_user_manager` without a systemd for this user, `systemctl_failed` with its words.
    """
    command = ["systemctl", "--user", *words]
    shown = " ".join(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except FileNotFoundError:
        raise _no_manager("systemctl is not installed") from None
    except subprocess.TimeoutExpired:
        raise HostError(f"`{shown}` did not end within {LIMIT_S:.0f} s.", code="systemctl_failed") from None
    said = (done.stderr or done.stdout).strip()
    if done.returncode and any(sign in said.lower() for sign in _NO_MANAGER):
        raise _no_manager(said.splitlines()[0])
    if done.returncode:
        raise HostError(
            f"`{shown}` failed: {said.rstrip('.')}.",
            code="systemctl_failed",
            hint="`journalctl --user -u sparkdash -n 50` shows the daemon's log.",
        )
    return done.stdout


def _no_manager(why: str) -> HostError:
    return HostError(
        f"No systemd answers for this user: {why.rstrip('.')}.",
        code="no_user_manager",
        hint="Log in directly (by ssh or at the console, not with su or sudo), or give the user a manager: "
        "`sudo loginctl enable-linger $USER`.",
    )
