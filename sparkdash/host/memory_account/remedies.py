"""Command that frees the memory of a holder.

Owns: which holders have a command. Commands are made to be copied: names are quoted; for a name that is unsafe in a
shell or a terminal, a number replaces it, or there is no command. Must not know figures.

Pure.
"""

from __future__ import annotations

import re
import shlex

from sparkdash.domain.memory.account import Holder
from sparkdash.host.memory_account.owners import Owner
from sparkdash.units import MIB

LARGE = 256 * MIB
"""Least memory for which a command is given."""
SHM = "/dev/shm"  # noqa: S108 - where the kernel has shared memory as files
FILES = 8
"""Limit of files in one command."""

_PLAIN = re.compile(r"\w[\w.@:/+\\=-]*", re.ASCII)
_KEPT = re.compile(
    r"(ssh|sshd|dbus(-broker)?|systemd-.*|NetworkManager|wpa_supplicant|polkit|getty@.*|serial-getty@.*"
    r"|nvidia-persistenced|docker|containerd|podman|user@.*|dbus-:.*)\.(service|scope)"
)
"""Units whose stop would cut the owner off, or end other holders too."""
_STOPS = {"podman": "podman stop", "docker": "docker stop", "nerdctl": "nerdctl stop"}


def remedy(owner: Owner, pid: int | None) -> str | None:
    """Command that ends this holder; None if none is advisable. `pid` is its largest process."""
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
    """Command that deletes files of /dev/shm, the largest first; None if no name can be typed."""
    typed = [shlex.quote(f"{SHM}/{name}") for name in names if _PLAIN.fullmatch(name)][:FILES]
    return f"{'' if own else 'sudo '}rm -- {' '.join(typed)}" if typed else None


def _stop(owner: Owner) -> str | None:
    if owner.unit is None or not _PLAIN.fullmatch(owner.unit) or _KEPT.fullmatch(owner.unit):
        return None
    if owner.of_user:
        return f"systemctl --user stop {shlex.quote(owner.unit)}" if owner.own else None
    return f"sudo systemctl stop {shlex.quote(owner.unit)}"
