"""PURE: whose a process is, by who started it, its control group and its user.

Owns: the order of the marks, and the name that the owner of the box knows. Must not know figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sparkdash.domain.memory.account import Holder
from sparkdash.host.memory_account.process_table import ProcessMemory

SHORT_ID = 12
"""Characters of a container's id that runtimes show."""
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
"""What a control group's path says of the runtime, the first that is met."""
_APP = re.compile(r"app-(?:gnome-|kde-|flatpak-|glib-)?(?P<name>.+?)(?:[-@](?:\d+|[0-9a-f]{8,}))?\.(?:scope|service)")
"""Applications of a desktop, as the desktop's own specification has their units named."""
_SHELLS = re.compile(r"(session-|tmux-spawn-|vte-spawn-|run-)[^/]*\.scope|init\.scope|user@\d+\.service")
"""Units that say nothing of what runs in them: logins, terminals."""
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


class Container(NamedTuple):
    """A container as its runtime names it."""

    name: str
    runtime: str
    image: str | None = None
    profile: str | None = None
    """Of an engine of this daemon."""


class Owner(NamedTuple):
    """Who holds; processes with an equal owner are one row."""

    kind: Holder
    name: str
    user: str | None = None
    runtime: str | None = None
    """Of a container."""
    image: str | None = None
    unit: str | None = None
    """systemd's name of it, for its commands; only of units."""
    of_user: bool = False
    """Whether a user's own service manager runs it."""
    own: bool = True
    """Whether it is a process of the user who asks."""


@dataclass(frozen=True, slots=True)
class KnownOwners:
    """What is known of the box's processes beyond /proc."""

    engines: Mapping[int, str] = field(default_factory=dict)
    """Profile by pid."""
    containers: Mapping[str, Container] = field(default_factory=dict)
    """By full id."""
    mains: Mapping[int, Container] = field(default_factory=dict)
    """By the pid of the first process, for containers whose control group does not name them."""
    ours: frozenset[int] = frozenset()
    """Pids of our daemon and of who asks."""
    asks: int = 0
    """Uid of the user who asks."""
    users: Mapping[int, str] = field(default_factory=dict)

    def user(self, uid: int) -> str:
        """The user's name, else his number."""
        return self.users.get(uid, f"uid {uid}")


def owners(processes: Iterable[ProcessMemory], known: KnownOwners) -> dict[int, Owner]:
    """The owner of each process, by pid."""
    listed = {one.pid: one for one in processes}
    ours = known.ours | {pid for pid, one in listed.items() if one.name == OURS}
    known = replace(known, ours=ours)
    return {pid: _owner(one, _ancestors(one, listed), known) for pid, one in listed.items()}


def container_id(cgroups: str) -> tuple[str, str] | None:
    """(runtime, full id) of the outermost container that a control group names."""
    for line in cgroups.splitlines():
        path = line.split(":", 2)[-1]
        if found := _ID.search(path):
            before = path[: found.start()]
            runtime = next((name for mark, name in _RUNTIMES if mark in before), "containerd")
            return runtime, found.group()
    return None


def _ancestors(one: ProcessMemory, listed: Mapping[int, ProcessMemory]) -> list[int]:
    """Its own pid and its parents', nearest first."""
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
    """The service or application that systemd has it in; None for one that says nothing."""
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
        if not of_user:  # a service's processes may run as several users
            return Owner(Holder.UNIT, name, unit=units[-1])
        return Owner(Holder.UNIT, name, user, unit=units[-1], of_user=True, own=own)
    return None
