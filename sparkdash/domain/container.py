"""Container values: the specification that a runtime starts, and the state that it reports. Pure."""

from enum import StrEnum

from sparkdash.domain.base import Frozen
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import Mount

LABEL_PROFILE = "sparkdash.profile"
LABEL_SERVES = "sparkdash.serves"
"""Comma-separated aliases; only on an exported command, for engines whose own flags cannot carry them."""
LABEL_FINGERPRINT = "sparkdash.fingerprint"
LABEL_PORT = "sparkdash.port"
LABEL_HEAD = "sparkdash.head"
"""Container of the same engine that serves; only on an engine's further containers (workers)."""
LABEL_NODES = "sparkdash.nodes"
"""Comma-separated names of the nodes that the engine runs on, the serving one first; absent for this node alone."""
LABEL_OWNER = "sparkdash.owner"
"""Hash of the daemon's state folder, so that two daemons on one box never adopt each other's engines."""

CONTAINER_PREFIX = "sparkdash-"

ENV_MARK = "SPARKDASH_ENGINE"
"""Environment variable that marks every process of an engine; it identifies a worker whose parent is gone."""


def engine_mark(owner: str, container: str) -> str:
    return f"{owner}/{container}"


class ContainerSpec(Frozen):
    """Container of one engine. A process runtime ignores `image`, `mounts`, `tmpfs`, `devices`, `shm_size` and
    `seccomp`."""

    name: str
    image: str | None
    argv: tuple[str, ...]
    prepare: tuple[str, ...] = ()
    """Command that must succeed before anything is stopped for the engine; only for a process runtime."""
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
    seccomp: str | None = None
    """File on the host that lists the allowed system calls: podman's default and io_uring. None: the default alone."""
    keeps_entrypoint: bool = False
    """Whether `argv` holds only arguments for the image's own entrypoint."""
    inner_port: int | None = None
    """Port that the program listens on inside a network of its own; None: the box's network, and `port` itself."""
    stop_signal: str | None = None
    """Name of the signal that asks the program to end; None: SIGTERM."""
    ulimits: tuple[str, ...] = ()
    """Limits of the container's processes, such as "memlock=-1:-1"."""
    labels: dict[str, str] = {}
    node: str = LOCAL
    workers: "tuple[ContainerSpec, ...]" = ()
    """Further containers of the same engine, on other nodes. They start and end with this one; a worker has none."""


def with_marks(spec: ContainerSpec, owner: str) -> ContainerSpec:
    """Add ENV_MARK to the container's variables and to those of its workers, each with its own name."""
    return spec.replace(
        env={**spec.env, ENV_MARK: engine_mark(owner, spec.name)},
        workers=tuple(with_marks(worker, owner) for worker in spec.workers),
    )


class ContainerState(StrEnum):
    """State of a container in the runtime's own words."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class ContainerInfo(Frozen):
    """Container as its runtime reports it. Times are Unix seconds."""

    id: str
    name: str
    state: ContainerState
    image: str | None = None
    labels: dict[str, str] = {}
    exit_code: int | None = None
    pid: int | None = None
    started_at: float | None = None
    gpu: bool = False
    ports: tuple[int, ...] = ()
    """Published ports of this box; empty with the host's network, where the runtime lists none."""
    mounts: tuple[str, ...] = ()
    """Host paths that it sees; empty with a runtime that lists none."""
    node: str = LOCAL

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes of the engine that the container serves for, this one's first."""
        return tuple(filter(None, self.labels.get(LABEL_NODES, "").split(","))) or (self.node,)


class ForeignContainer(Frozen):
    """Foreign container that uses what the engines need. It is shown and never touched."""

    name: str
    image: str | None = None
    gpu: bool = False
    ports: tuple[int, ...] = ()
    """Published ports that belong to `engine_ports`."""
    bytes: int | None = None
    """Memory of its processes, counted as for engines; None while unknown."""


class Leftovers(Frozen):
    """Processes that outlived their engine, as host pids."""

    ended: tuple[int, ...] = ()
    stuck: tuple[int, ...] = ()
    """Processes that survived SIGKILL, or that sparkdash may not signal."""
    stuck_how: tuple[str, ...] = ()
    """Identity of each stuck process and what keeps it, in words; empty where unknown."""
    unremoved: str | None = None
    """Why the runtime still lists the ended container; None once it is removed."""
    pending: tuple[str, ...] = ()
    """Silent nodes on which containers of the engine may still run; they are ended once the nodes answer again."""


class PullProgress(Frozen):
    """Step of fetching an image. `fraction` is 0..1, None when the runtime does not say."""

    image: str
    detail: str
    fraction: float | None = None
    done: bool = False
