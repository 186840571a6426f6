"""Node: a box that engines run on, this one or another Spark; what is known of it, and what the doctor found. Pure."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from sparkdash.domain.base import Frozen

LOCAL = "local"
"""Name of the node that the daemon runs on. No other node may have it; screens show the box's host name."""

NODE_NAME = r"^[a-z0-9][a-z0-9-]{0,30}$"
"""Pattern of a node's name."""

RANK_ARGS = frozenset(
    {"nnodes", "node-rank", "headless", "master-addr", "master-port", "dist-init-addr", "nccl-init-addr"}
)
"""Engine arguments that tell a process its place among several nodes. sparkdash sets them; no profile may."""


class Node(Frozen):
    """Another box, as `sparkdash nodes add` wrote it down; neither a password nor a private key is part of it."""

    name: Annotated[str, Field(pattern=NODE_NAME)]
    ssh: str
    port: int = Field(default=22, ge=1, le=65535)
    host_key: str
    """Public host key seen at the first contact, as a line of known_hosts without the host: `ssh-ed25519 AAAA…`."""
    address: str | None = None
    """IP address of the node on the fast link; None: detected."""
    interface: str | None = None
    """Network interface of the node on the fast link; None: detected."""
    hf_home: str | None = None
    """Hugging Face cache on the node; None: `~/.cache/huggingface` there."""


class NodeStatus(StrEnum):
    """Whether a node can be reached now."""

    CONNECTING = "connecting"
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    """No answer. Its engines may still run: this is never taken for "stopped"."""
    REFUSED = "refused"
    """Answers, and may not be used: its host key changed, or it does not let us in."""


class Link(Frozen):
    """Network interface of a node that may carry tensors. None: the kernel does not tell."""

    interface: str
    address: str | None = None
    prefix: int | None = None
    """Length of the address's network prefix, in bits."""
    mtu: int | None = None
    rate_gbit_s: float | None = None
    up: bool | None = None
    hca: str | None = None
    """RDMA device behind the interface, such as rocep1s0f1; None without one."""
    gid_index: int | None = None
    """Index of the RoCEv2 GID with the interface's IPv4 address; it differs from box to box."""
    hardware: str | None = None
    """Hardware address (MAC) of the interface."""


class NodeFacts(Frozen):
    """Facts of a node, read when the connection to it was made. None is unknown."""

    hostname: str
    arch: str
    home: str
    uid: int
    runtime_version: str | None = None
    driver: str | None = None
    cuda: str | None = None
    kernel: str | None = None
    boot: str | None = None
    """Id of the kernel's boot; another one than before means that the node was restarted."""
    clock_offset_s: float | None = None
    """Clock of the node less this box's clock."""
    disk_free: int | None = None
    """Free bytes where the node's container images and weights lie; the smaller of the two."""
    links: tuple[Link, ...] = ()
    """Interfaces with an address, the fastest first; loopback and bridges left out."""


class NodeState(Frozen):
    """Node as clients see it."""

    name: str
    status: NodeStatus
    since: float
    """Time when the node entered this status, Unix seconds."""
    reason: str | None = None
    facts: NodeFacts | None = None
    link: str | None = None
    """Interface of this node that engines use towards the others; None while unknown."""
    differs: str | None = None
    """Differences from before the node was away; until they are mended no engine over several nodes comes there."""
    owed: tuple[str, ...] = ()
    """Containers on it that are to be ended as soon as it is reachable again."""
    guarded: bool = False
    """Whether the node's own memory guard runs there."""


class NodeLaunch(Frozen):
    """Node of a launch: its address, folders and link."""

    name: str
    address: str
    """IP address towards the other nodes of the launch; 127.0.0.1 for a launch on this node alone."""
    hf_home: str
    cache_dir: str
    link: Link | None = None
    """Link that the address belongs to; None for a launch on this node alone."""
    twins: tuple[str, ...] = ()
    """Other RDMA devices that reach every node of the launch. A QSFP port is two devices of half its rate."""
    cables: dict[str, tuple[Link, ...]] = {}
    """Ends of the cables to each neighbour, in a ring or line; empty where `link` carries the tensors."""

    @property
    def devices(self) -> tuple[str, ...]:
        """RDMA devices that carry tensors, those of a port's first half before their twins in a ring or line."""
        if self.cables:
            found = {link.hca for links in self.cables.values() for link in links if link.hca}
            return tuple(sorted(found, key=str.swapcase))  # rocep1s0f0 before roceP2p1s0f0
        return (self.link.hca, *self.twins) if self.link and self.link.hca else ()


class Status(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing need be done."""
    UNKNOWN = "unknown"
    """The check could not read what it needs."""
    WARN = "warn"
    """Engines run, but slower, or not for long, or not after the next logout."""
    FAIL = "fail"
    """Engines will not start, or sparkdash itself will not."""


class Finding(Frozen):
    """Result of one check. `evidence` names what was read and where; `fix` is one line that repairs it."""

    name: str
    status: Status
    evidence: str
    fix: str | None = None


class NodeFinding(Finding):
    """Result of a check of one node, or of a pair of them. `fix` is typed on this box."""

    nodes: tuple[str, ...]
    """Names of the nodes that it is about; this box is LOCAL."""


class Diagnosis(Frozen):
    """All findings of the doctor, in the order of its checks."""

    findings: tuple[Finding, ...]

    @property
    def worst_first(self) -> list[Finding]:
        order = list(Status)
        return sorted(self.findings, key=lambda one: -order.index(one.status))
