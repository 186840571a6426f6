"""The user's own systemd, through systemctl.

Owns: where user units live, calling systemctl with a deadline, and what its refusals mean. Must not know what a unit says.
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
"""Longest wait for systemctl: it returns when the daemon is ready, and that is after it has looked for its engines."""

_NO_MANAGER = ("failed to connect to bus", "has not been booted with systemd", "no medium found")


def unit_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where a user's own units are (systemd.unit(5))."""
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def lingers() -> bool | None:
    """Do this user's services outlive the last logout? None where no systemd keeps such a list."""
    if not LINGER.parent.is_dir():
        return None
    return (LINGER / getpass.getuser()).exists()


def systemctl(*words: str) -> str:
    """Run `systemctl --user WORDS` and give what it printed.

    Raises:
        HostError: code `no_user_manager` when there is no systemd for this user, `systemctl_failed` with its words.
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
            hint="`journalctl --user -u sparkdash -n 50` shows what the daemon said.",
        )
    return done.stdout


def _no_manager(why: str) -> HostError:
    return HostError(
        f"No systemd answers for this user: {why.rstrip('.')}.",
        code="no_user_manager",
        hint="Log in directly (by ssh or at the console, not with su or sudo), or give the user a manager: "
        "`sudo loginctl enable-linger $USER`.",
    )
