"""Parsers of the sections of `remote_readings`.

Owns: the shape of each section. Must not know how a section is read, or what it means.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_RATE = re.compile(r"^([\d.]+) *Gb/sec")
ROCE_V2 = "RoCE v2"


class Gid(NamedTuple):
    """Entry of an RDMA port's GID table."""

    place: int
    """Index in the table."""
    gid: str
    kind: str
    """Type as sysfs tells it: `RoCE v2`, `IB/RoCE v1`."""

    @property
    def has_ipv4(self) -> bool:
        """Whether the GID maps an IPv4 address (::ffff:a.b.c.d)."""
        return self.gid.replace(":", "").startswith("0" * 20 + "ffff")


class RdmaPort(NamedTuple):
    """Port of an RDMA device."""

    hca: str
    active: bool
    state: str
    """State as sysfs tells it: `4: ACTIVE`."""
    rate_gbit_s: float | None
    netdevs: tuple[str, ...]
    gids: tuple[Gid, ...]

    @property
    def gid_index(self) -> int | None:
        """Index of the RoCEv2 GID with an IPv4 address; None without one."""
        return next((each.place for each in self.gids if each.kind == ROCE_V2 and each.has_ipv4), None)


def parse_rdma_ports(section: Mapping[str, Any]) -> tuple[RdmaPort, ...]:
    """Parse the section `hcas`."""
    return tuple(
        RdmaPort(
            hca=str(port["hca"]),
            active="ACTIVE" in str(port["state"]),
            state=str(port["state"]),
            rate_gbit_s=float(found[1]) if (found := _RATE.match(str(port["rate"]))) else None,
            netdevs=tuple(port["netdevs"]),
            gids=tuple(Gid(each["index"], each["gid"], each["type"]) for each in port["gids"]),
        )
        for port in section["ports"]
    )


def parse_route_device(section: Mapping[str, Any], peer: str) -> str | None:
    """Interface over which the section `routes` says that packets to `peer` leave; None without a route."""
    route = section.get(peer) or {}
    device = route.get("dev")
    return device if isinstance(device, str) else None


def parse_image(section: Mapping[str, Any], name: str) -> tuple[str, str | None] | None:
    """Id and digest of an image in the section `images`; None when the box lacks it."""
    found = section.get(name)
    return None if found is None else (str(found["id"]).removeprefix("sha256:"), found.get("digest"))


def addresses_of(section: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """IPv4 addresses with their prefixes by interface, from the section `addresses` (`ip -j address`)."""
    return {
        str(each["ifname"]): tuple(
            f"{info['local']}/{info['prefixlen']}" for info in each.get("addr_info", ()) if info.get("family") == "inet"
        )
        for each in section["interfaces"]
        if "ifname" in each
    }
