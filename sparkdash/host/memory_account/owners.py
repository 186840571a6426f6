"""Owner of each process, by its ancestors, its control group and its user.

Owns: the order of the marks, and the name that a person knows. Must not know figures.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sparkdash.domain.memory.account import Holder
from sparkdash.host.memory_account.process_table import ProcessMemory

SHORT_ID = 12
"""Length of a container's id as runtimes show it."""
OURS = "sparkdash"

_ID = re.compile(r"[0-9a-f]{64}")
_RUNTIMES = (
    ("libpod", "podman"),
    ("docker", "docker"),
    ("cri-containerd", "kubernetes"),
    ("crio", "kubernetes"),
    ("kubepods", "kubernetes"),
    ("nerdctl", "nerdctl"),
)
"""Runtimes by a mark in a control group's path; the first match counts."""
_APP = re.compile(r"app-(?:gnome-|kde-|flatpak-|glib-)?(?P<name>.+?)(?:[-@](?:\d+|[0-9a-f]{8,}))?\.(?:scope|service)")
"""Units of desktop applications, named by the desktop's specification."""
_SHELLS = re.compile(r"(session-|tmux-spawn-|vte-spawn-|run-)[^/]*\.scope|init\.scope|user@\d+\.service")
"""Units whose name does not tell their content: logins, terminals."""
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


class Container(NamedTuple):
    """Container with the name that its runtime gives."""

    name: str
    runtime: str
    image: str | None = None
    profile: str | None = None
    """Profile of an engine of this daemon."""


class Owner(NamedTuple):
    """Owner of processes; those with an equal owner share a row."""

    kind: Holder
    name: str
    user: str | None = None
    runtime: str | None = None
    """Runtime of a container."""
    image: str | None = None
    unit: str | None = None
    """systemd's name, for its commands; None except for units."""
    of_user: bool = False
    """Whether a user's service manager runs the unit."""
    own: bool = True
    """Whether the process belongs to the user who asks."""


@dataclass(frozen=True, slots=True)
class KnownOwners:
    """Knowledge about the box's processes beyond /proc."""

    engines: Mapping[int, str] = field(default_factory=dict)
    """Profile by pid."""
    containers: Mapping[str, Container] = field(default_factory=dict)
    """Containers by full id."""
    mains: Mapping[int, Container] = field(default_factory=dict)
    """Containers by the pid of their first process, if their control group does not name them."""
    ours: frozenset[int] = frozenset()
    """Pids of our daemon and of the asking process."""
    asks: int = 0
    """Uid of the user who asks."""
    users: Mapping[int, str] = field(default_factory=dict)

    def user(self, uid: int) -> str:
        """Name of the user, or "uid N"."""
        return self.users.get(uid, f"uid {uid}")


def owners(processes: Iterable[ProcessMemory], known: KnownOwners) -> dict[int, Owner]:
    """Find the owner of each process, by pid."""
    listed = {one.pid: one for one in processes}
    ours = known.ours | {pid for pid, one in listed.items() if one.name == OURS}
    known = replace(known, ours=ours)
    return {pid: _owner(one, _ancestors(one, listed), known) for pid, one in listed.items()}


def container_id(cgroups: str) -> tuple[str, str] | None:
    """Parse (runtime, full id) of the outermost container in a control group."""
    for line in cgroups.splitlines():
        path = line.split(":", 2)[-1]
        if found := _ID.search(path):
            before = path[: found.start()]
            runtime = next((name for mark, name in _RUNTIMES if mark in before), "containerd")
            return runtime, found.group()
    return None


def _ancestors(one: ProcessMemory, listed: Mapping[int, ProcessMemory]) -> list[int]:
    """Pid of the process and its ancestors, nearest first."""
    found = [one.pid]
    while (parent := listed.get(one.parent)) is not None and parent.pid not in found:
        found.append(parent.pid)
        one = parent
    return found


def _owner(one: ProcessMemory, family: list[int], known: KnownOwners) -> Owner:
    if profile := next((known.engines[pid] for pid in family if pid in known.engines), None):
        return Owner(Holder.ENGINE, profile)
    if (named := container_id(one.cgroups)) is not None:
        runtime, id_ = named
        if (told := known.containers.get(id_)) is not None:
            return _contained(told)
        return Owner(Holder.CONTAINER, id_[:SHORT_ID], runtime=runtime)
    if told := next((known.mains[pid] for pid in family if pid in known.mains), None):
        return _contained(told)
    user, own = known.user(one.uid), known.asks in (0, one.uid)
    if not known.ours.isdisjoint(family):
        return Owner(Holder.SPARKDASH, OURS, user)
    return _unit(one.cgroups, user, own=own) or Owner(Holder.PROGRAM, one.name, user, own=own)


def _contained(told: Container) -> Owner:
    if told.profile is not None:
        return Owner(Holder.ENGINE, told.profile)
    return Owner(Holder.CONTAINER, told.name, runtime=told.runtime, image=told.image)


def _unit(cgroups: str, user: str, *, own: bool) -> Owner | None:
    """Service or application of a control group by systemd; None for logins and terminals."""
    for line in cgroups.splitlines():
        number, _, rest = line.partition(":")
        controller, _, path = rest.partition(":")
        if number != "0" and controller != "name=systemd":
            continue
        units = [part for part in path.split("/") if part.endswith((".service", ".scope"))]
        if not units or _SHELLS.fullmatch(units[-1]):
            continue
        app, of_user = _APP.fullmatch(units[-1]), units[0].startswith("user@")
        name = _ESCAPED.sub(lambda code: chr(int(code[1], 16)), app["name"] if app else units[-1])
        if not of_user:  # processes of one service may run as several users
            return Owner(Holder.UNIT, name, unit=units[-1])
        return Owner(Holder.UNIT, name, user, unit=units[-1], of_user=True, own=own)
    return None
