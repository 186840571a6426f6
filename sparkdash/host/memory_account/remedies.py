"""PURE: the command that frees what somebody holds.

Owns: which holders have one. A command is there to be copied: names are quoted, and one that a shell or a terminal could
take amiss is replaced by a number, or there is no command.
"""

from __future__ import annotations

import re
import shlex

from sparkdash.domain.memory.account import Holder
from sparkdash.host.memory_account.owners import Owner
from sparkdash.units import MIB

LARGE = 256 * MIB
"""Least that a command is worth."""
SHM = "/dev/shm"  # noqa: S108 - where the kernel has shared memory as files
FILES = 8
"""Files that one command names."""

_PLAIN = re.compile(r"\w[\w.@:/+\\=-]*", re.ASCII)
_KEPT = re.compile(
    r"(ssh|sshd|dbus(-broker)?|systemd-.*|NetworkManager|wpa_supplicant|polkit|getty@.*|serial-getty@.*|nvidia-persistenced"
    r"|docker|containerd|podman|user@.*|dbus-:.*)\.(service|scope)"
)
"""Units whose end would cut the owner off, or take other rows with it."""
_STOPS = {"podman": "podman stop", "docker": "docker stop", "nerdctl": "nerdctl stop"}


def remedy(owner: Owner, pid: int | None) -> str | None:
    """What ends this holder; None where there is nothing to recommend. `pid` is its largest process."""
    if owner.kind is Holder.ENGINE and _PLAIN.fullmatch(owner.name):
        return f"sparkdash stop {owner.name}"
    if owner.kind is Holder.CONTAINER and owner.runtime in _STOPS and _PLAIN.fullmatch(owner.name):
        return f"{_STOPS[owner.runtime]} {owner.name}"
    if owner.kind is Holder.UNIT:
        return _stop(owner)
    if owner.kind is Holder.PROGRAM and pid is not None:
        return f"{'' if owner.own else 'sudo '}kill {pid}"
    return None


def removal(names: tuple[str, ...], *, own: bool) -> str | None:
    """The command that deletes files of /dev/shm, the largest first; None when no name can be typed."""
    typed = [shlex.quote(f"{SHM}/{name}") for name in names if _PLAIN.fullmatch(name)][:FILES]
    return f"{'' if own else 'sudo '}rm -- {' '.join(typed)}" if typed else None


def _stop(owner: Owner) -> str | None:
    if owner.unit is None or not _PLAIN.fullmatch(owner.unit) or _KEPT.fullmatch(owner.unit):
        return None
    if owner.of_user:
        return f"systemctl --user stop {shlex.quote(owner.unit)}" if owner.own else None
    return f"sudo systemctl stop {shlex.quote(owner.unit)}"
