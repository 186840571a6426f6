"""Text of the user unit that runs the daemon.

Owns: the text, and recognising a unit that sparkdash wrote. Must not know where the unit is installed.

Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

NAME = "sparkdash.service"
MARK = "# Written by `sparkdash service install`"
KEPT = (
    "SPARKDASH_CONFIG_DIR",
    "SPARKDASH_STATE_DIR",
    "SPARKDASH_BENCH_DIR",
    "SPARKDASH_RUNTIME_DIR",
    "SPARKDASH_HOST",
    "SPARKDASH_PORT",
    "SPARKDASH_RUNTIME",
    "CONTAINERS_CONF",
    "DOCKER_HOST",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
)
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
    """Whether sparkdash wrote this unit."""
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
