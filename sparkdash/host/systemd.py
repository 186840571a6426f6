"""The user's systemd, through systemctl."""

import getpass
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from sparkdash.errors import HostError

LINGER = Path("/var/lib/systemd/linger")
LIMIT_S = 240.0
"""Longest wait for systemctl, which returns when the daemon is ready, after its look for engines."""

_NO_MANAGER = ("failed to connect to bus", "has not been booted with systemd", "no medium found")


def unit_folder() -> Path:
    """Folder of the user's own units (systemd.unit(5))."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd" / "user"


def lingers() -> bool | None:
    """Whether this user's services outlive the last logout; None without systemd's list."""
    if not LINGER.parent.is_dir():
        return None
    return (LINGER / getpass.getuser()).exists()


def systemctl(*words: str) -> str:
    """Return the output of `systemctl --user WORDS`. Raises HostError: no_user_manager, systemctl_failed."""
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


NAME = "sparkdash.service"
MARK = "# Written by `sparkdash service install`"
KEPT = (
    "SPARKDASH_CONFIG_DIR", "SPARKDASH_STATE_DIR", "SPARKDASH_BENCH_DIR", "SPARKDASH_RUNTIME_DIR", "SPARKDASH_HOST",
    "SPARKDASH_PORT", "SPARKDASH_RUNTIME", "CONTAINERS_CONF", "DOCKER_HOST", "XDG_CONFIG_HOME", "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
)  # fmt: skip
"""Variables copied from the installing shell, as the user manager does not have them."""


def text(command: Sequence[str], environment_file: Path, environ: Mapping[str, str]) -> str:
    """Compose the unit (systemd.service(5)); `command` is absolute, `environ` the installing shell's."""
    kept = "".join(f"Environment={_word(f'{name}={environ[name]}')}\n" for name in KEPT if environ.get(name))
    return f"""{MARK}; the next install writes it anew.
# Changes of your own belong into `systemctl --user edit sparkdash`.
[Unit]
Description=sparkdash: gateway, and engines swapped behind it
StartLimitIntervalSec=300
StartLimitBurst=5

[Service]
Type=notify
NotifyAccess=main
ExecStart={" ".join(_word(word).replace("$", "$$") for word in command)}
ExecReload=/bin/kill -HUP $MAINPID
{kept}# Tokens, as NAME=value lines in a file that only you may read (chmod 600).
EnvironmentFile=-{_percent(str(environment_file))}
# Engines outlive the daemon, and the next one adopts them: a stop or an update must not end them.
KillMode=process
# An engine that the kernel ended for its memory is the daemon's matter, not the end of it.
OOMPolicy=continue
# The listening sockets stay open over a restart: clients wait a moment instead of being refused.
FileDescriptorStoreMax=4
Restart=on-failure
RestartSec=5
# Settings that are not valid (2), or another daemon (7): trying again would not help.
RestartPreventExitStatus=2 7
# The event loop answers twice in this time, or systemd ends the daemon and starts it again.
WatchdogSec=60
# Adopting engines asks podman, which is slow on a box short of memory.
TimeoutStartSec=180
TimeoutStopSec=60

[Install]
WantedBy=default.target
"""


def ours(unit: str) -> bool:
    return unit.startswith(MARK)


def program(unit: str) -> str | None:
    """Parse the program that a unit of sparkdash starts; None without one."""
    line = next((line for line in unit.splitlines() if line.startswith("ExecStart=")), "")
    words = shlex.split(line.removeprefix("ExecStart="))
    return words[0].replace("%%", "%").replace("$$", "$") if words else None


def _word(word: str) -> str:
    """Quote one word of a command line or assignment, by systemd.syntax(7)."""
    escaped = _percent(word).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if any(letter in " \t'\"\\;" for letter in word) else escaped


def _percent(words: str) -> str:
    return words.replace("%", "%%")
