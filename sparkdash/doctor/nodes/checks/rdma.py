"""Checks of RDMA on both boxes: devices, GIDs, /dev/infiniband, locked memory.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkdash.doctor.check import CheckResult, fail, note, ok, warn
from sparkdash.doctor.nodes.check import box_check, pair_check
from sparkdash.doctor.nodes.facts import BoxFacts, PairFacts
from sparkdash.doctor.nodes.readings import RdmaPort, parse_rdma_ports
from sparkdash.domain.node import Link
from sparkdash.units import size

PINNED = {"NCCL_IB_HCA": "hca", "NCCL_IB_GID_INDEX": "gid", "NCCL_SOCKET_IFNAME": "interface"}
PINNED |= {"GLOO_SOCKET_IFNAME": "interface"}
"""Variables of a profile that name something of one box."""
LIMITS = "/etc/security/limits.d/90-memlock.conf"


def _ports(box: BoxFacts) -> tuple[RdmaPort, ...]:
    return parse_rdma_ports(box.section("hcas"))


@pair_check("hca", "An RDMA device is active behind each end of the link.", reads=("hcas",))
def hca(pair: PairFacts) -> Iterator[CheckResult]:
    """Check devices of the link. Without them NCCL falls back to TCP sockets without a word (vllm PR#42075)."""
    ends = _ends(pair)
    lacking = [(box, end) for box, end in ends if end.hca is None]
    if len(lacking) == len(ends):
        yield note("Neither end of the link has an RDMA device: NCCL uses TCP sockets, which is slower.")
        return
    for box, end in lacking:
        yield warn(
            f"{end.interface} of {box.shown} has no RDMA device: NCCL falls back to TCP sockets without a word.",
            box.command("sudo modprobe mlx5_ib; ibdev2netdev"),
        )
    yield from (_port_state(box, end) for box, end in ends if end.hca is not None)


def _ends(pair: PairFacts) -> tuple[tuple[BoxFacts, Link], tuple[BoxFacts, Link]]:
    shared = pair.link()
    return (pair.here, shared.here), (pair.there, shared.there)


def _port_state(box: BoxFacts, end: Link) -> CheckResult:
    port = next((each for each in _ports(box) if each.hca == end.hca), None)
    if port is None or not port.active:
        return fail(
            f"{end.hca} of {box.shown} is {port.state if port else 'missing'}.",
            box.command(f"sudo ip link set {end.interface} up; ibstat {end.hca}"),
        )
    rate = "" if port.rate_gbit_s is None else f", {port.rate_gbit_s:g} Gb/s"
    return ok(f"{end.hca} of {box.shown} is active behind {end.interface}{rate}.")


@pair_check("gid", "Each RDMA device of the link has a RoCEv2 GID with an IPv4 address.", reads=("hcas",))
def gid(pair: PairFacts) -> Iterator[CheckResult]:
    """Report the GID index per node, and profiles that pin a name or index that one of the boxes does not have."""
    ends = [(box, end) for box, end in _ends(pair) if end.hca]
    if not ends:
        yield note("The link has no RDMA device.")
        return
    for box, end in ends:
        if end.gid_index is None:
            yield fail(
                f"{end.hca} of {box.shown} has no RoCEv2 GID with an IPv4 address.",
                box.command(f"sudo ip address add {end.address}/{end.prefix} dev {end.interface}; show_gids"),
            )
    found = [(box, end) for box, end in ends if end.gid_index is not None]
    if found:
        yield _gid_indices(found)
    yield from _pinned(pair)


def _gid_indices(ends: Sequence[tuple[BoxFacts, Link]]) -> CheckResult:
    listed = ", ".join(f"{end.gid_index} on {box.shown} ({end.hca})" for box, end in ends)
    differ = len({end.gid_index for _, end in ends}) > 1
    return ok(f"GID index {listed}." + (" Each box gets its own." if differ else ""))


def _pinned(pair: PairFacts) -> Iterator[CheckResult]:
    for profile in pair.wanted():
        for variable, kind in PINNED.items():
            value = profile.env.get(variable)
            if value is None or value.startswith("^"):
                continue
            for box in pair.boxes:
                if lacking := _lacking(box, kind, value):
                    yield warn(
                        f"{profile.name} sets {variable}={value}, and {box.shown} has {lacking}.",
                        f"Remove {variable} from {profile.name}: sparkdash sets it for each node.",
                    )


def _lacking(box: BoxFacts, kind: str, value: str) -> str | None:
    """Words for what the box has instead of the named thing; None when the box has it."""
    if kind == "gid":
        indices = sorted({link.gid_index for link in box.known().links if link.gid_index is not None})
        names = [f"index {each}" for each in indices]
        fits = not indices or value in map(str, indices)
    else:
        names = [link.interface for link in box.known().links] if kind == "interface" else _hcas(box)
        fits = _has_each(names, value)
    return None if fits else (", ".join(names) or "none")


def _has_each(names: Sequence[str], value: str) -> bool:
    """Whether a name begins with each of the listed ones; NCCL's lists look like `=mlx5_0:1,mlx5_1`."""
    wanted = [each.lstrip("=").partition(":")[0] for each in value.split(",")]
    return all(any(name.startswith(each) for name in names) for each in wanted)


def _hcas(box: BoxFacts) -> list[str]:
    return [port.hca for port in _ports(box)]


@box_check("infiniband", "Engines can be given /dev/infiniband.", reads=("devices", "hcas"))
def infiniband(box: BoxFacts) -> Iterator[CheckResult]:
    """Check the devices that a container needs for RDMA."""
    section, ports = box.section("devices"), _ports(box)
    names, usable = section["names"], section["usable"]
    if not ports:
        yield note("There is no RDMA device.")
    elif not names:
        yield fail("There are RDMA devices, and no /dev/infiniband.", box.command("sudo modprobe ib_uverbs rdma_ucm"))
    elif not any(name.startswith("uverbs") for name in usable):
        yield fail("This user may not use /dev/infiniband/uverbs*.", box.command("sudo usermod -aG rdma $USER"))
    else:
        yield ok(f"{len(usable)} of {len(names)} devices of /dev/infiniband can be used.")


@box_check("memlock", "Engines may lock the memory that RDMA registers.", reads=("memlock", "hcas"))
def memlock(box: BoxFacts) -> Iterator[CheckResult]:
    """Check the hard limit: podman of an ordinary user cannot raise it (podman#19319)."""
    section = box.section("memlock")
    hard = section["hard"]
    if not _ports(box):
        yield note("There is no RDMA device.")
    elif hard is None or section["uid"] == 0:
        yield ok("No limit on locked memory." if hard is None else "root may raise the limit of locked memory.")
    else:
        line = "* - memlock unlimited"
        yield fail(
            f"At most {size(hard)} may be locked: RDMA registers more, and NCCL fails or uses TCP sockets.",
            box.command(f"echo '{line}' | sudo tee {LIMITS}") + "; then log in again",
        )
