"""ContainerSpec: what a runtime is asked to start, and what it says it has.

Pure data between the engine adapters, which write it, and the runtimes, which carry it out.
"""

from __future__ import annotations

from enum import StrEnum

from sparkdash.domain.base import Frozen
from sparkdash.domain.profile import Mount

LABEL_PROFILE = "sparkdash.profile"
LABEL_SERVES = "sparkdash.serves"
"""Aliases with commas between them; only on an exported command, for engines whose own flags cannot say them."""
LABEL_FINGERPRINT = "sparkdash.fingerprint"
LABEL_PORT = "sparkdash.port"
LABEL_OWNER = "sparkdash.owner"
"""Which daemon started it: the state folder's path hashed, so that two daemons on one box never adopt each other's."""

CONTAINER_PREFIX = "sparkdash-"
"""Every container of an engine is named so."""

ENV_MARK = "SPARKDASH_ENGINE"
"""A variable in the environment of every process of an engine: owner and container. A worker whose parent is gone
still tells by it whose it is."""


def mark(owner: str, container: str) -> str:
    """The value of ENV_MARK."""
    return f"{owner}/{container}"


class ContainerSpec(Frozen):
    """One engine's container. With a process runtime, `image`, `mounts`, `tmpfs`, `devices` and `shm_size` do not count."""

    name: str
    image: str | None
    argv: tuple[str, ...]
    """Program and arguments inside the container."""
    port: int
    """TCP port on 127.0.0.1 that the engine will listen on."""
    env: dict[str, str] = {}
    env_from: tuple[str, ...] = ()
    """Variables that the container takes from the daemon's environment; a runtime names them and never their values."""
    mounts: tuple[Mount, ...] = ()
    tmpfs: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """CDI names such as "nvidia.com/gpu=all"."""
    shm_size: str | None = None
    labels: dict[str, str] = {}


class ContainerState(StrEnum):
    """A runtime's word for where a container is."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class ContainerInfo(Frozen):
    """One container as its runtime reports it. Times are Unix seconds."""

    id: str
    name: str
    state: ContainerState
    image: str | None = None
    labels: dict[str, str] = {}
    exit_code: int | None = None
    pid: int | None = None
    started_at: float | None = None
    gpu: bool = False
    """Was it given one?"""
    ports: tuple[int, ...] = ()
    """Of this box, that it publishes; none with the host's network, where nobody tells."""


class Stranger(Frozen):
    """A container that is not ours and takes of what our engines need. It is shown and never touched."""

    name: str
    image: str | None = None
    gpu: bool = False
    """Was it given one?"""
    ports: tuple[int, ...] = ()
    """That it publishes and that are ours to give."""
    bytes: int | None = None
    """What its processes hold, counted as our engines' are; None while nobody can tell."""


class Leftovers(Frozen):
    """Processes that outlived the engine that they belonged to; host pids."""

    ended: tuple[int, ...] = ()
    """Ended by us."""
    stuck: tuple[int, ...] = ()
    """Still there: not even SIGKILL ended them, or we may not send it."""
    stuck_how: tuple[str, ...] = ()
    """Of each of these who it is and what keeps it, in words; empty where that is not told."""
    unremoved: str | None = None
    """Why the ended container itself is still listed by its runtime; None: it is not."""
    unseen: bool = False
    """There may be more: the look at all processes was late."""


class PullProgress(Frozen):
    """One step of fetching an image. `fraction` is of 1, None when the runtime does not say."""

    image: str
    detail: str
    fraction: float | None = None
    done: bool = False
