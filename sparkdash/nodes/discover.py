"""Search for boxes behind the fast ports: who answers there, and the host key that each shows."""

import asyncio
import json
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from sparkdash.domain.node import Node
from sparkdash.errors import HostError
from sparkdash.host.command import run_command
from sparkdash.nodes.shared_links import FAST_GBIT_S
from sparkdash.nodes.ssh import ssh_command, ssh_errors
from sparkdash.nodes.ssh.facts_script import NET, hca_of, rate_gbit_s, read_text

ANSWER_S, PROGRAM_S = 1.0, 5.0
ALL_NODES = "ff02::1"
ECHO = bytes((128, 0, 0, 0, 0, 0, 0, 1))
"""ICMPv6 echo request; the kernel fills in checksum and identifier."""


class Sighting(NamedTuple):
    """Address behind a port, with the host name that LLDP tells."""

    interface: str
    address: str
    name: str | None = None


class FoundBox(NamedTuple):
    """Box that shows a host key: its best address, and the interfaces of this box behind which it was seen."""

    address: str
    port: int
    host_key: str
    name: str | None
    interfaces: tuple[str, ...]


def fast_ports() -> list[str]:
    """Return the interfaces with a cable that were made for tensors, with or without an address."""
    names = sorted(path.name for path in NET.glob("*") if read_text(path / "operstate") == "up")
    ports = [(name, *hca_of(name)) for name in names]
    return [name for name, hca, port in ports if hca or (rate_gbit_s(name, port) or 0.0) >= FAST_GBIT_S]


async def find_boxes(interfaces: Sequence[str]) -> list[FoundBox]:
    """Return the boxes that run sshd behind these interfaces, one for each host key."""
    told = parse_lldp(await _printed("lldpctl", "-f", "json0"), interfaces)
    seen = [*told, *(one for found in await asyncio.gather(*map(_neighbours, interfaces)) for one in found)]
    seen.sort(key=lambda one: (one.name is None, ":" in one.address, one.address))
    boxes: dict[str, FoundBox] = {}
    for one, shown in zip(seen, await asyncio.gather(*map(_host_key, seen)), strict=True):
        if shown is not None:
            port, key = shown
            known = boxes.get(key, FoundBox(one.address, port, key, one.name, ()))
            boxes[key] = known._replace(interfaces=tuple(dict.fromkeys((*known.interfaces, one.interface))))
    return list(boxes.values())


async def _host_key(one: Sighting) -> tuple[int, str] | None:
    with suppress(HostError):
        port = (await resolve(one.address)).port
        return port, await ask_host_key("neighbour", one.address, port)
    return None


async def _neighbours(interface: str) -> list[Sighting]:
    """List who answers on the interface, and whom the kernel knows there."""
    answered = await asyncio.to_thread(_answers, interface)
    known = parse_neighbours(await _printed("ip", "-j", "neigh", "show", "dev", interface))
    return [Sighting(interface, scoped(address, interface)) for address in sorted({*answered, *known})]


def _answers(interface: str) -> set[str]:
    """Return the addresses that answer an echo to all; none where the kernel refuses us such a socket."""
    found = set()
    with suppress(OSError), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6) as asked:
        asked.settimeout(ANSWER_S)
        asked.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
        asked.sendto(ECHO, (ALL_NODES, 0, 0, socket.if_nametoindex(interface)))
        while True:
            found.add(str(asked.recvfrom(64)[1][0]).partition("%")[0])
    return found


def scoped(address: str, interface: str) -> str:
    return f"{address}%{interface}" if address.startswith("fe80:") else address


def parse_neighbours(text: str) -> Iterator[str]:
    """Yield the addresses in the answer of `ip -j neigh` whose hardware address is known."""
    for each in json.loads(text or "[]"):
        if "lladdr" in each and "FAILED" not in each.get("state", ()):
            yield str(each["dst"])


def parse_lldp(text: str, interfaces: Sequence[str]) -> Iterator[Sighting]:
    """Yield the neighbours in the answer of `lldpctl -f json0` that tell an address of their management."""
    for part in json.loads(text or "{}").get("lldp", ()):
        for each in part.get("interface", ()):
            for chassis in each.get("chassis", ()) if each.get("name") in interfaces else ():
                names, addresses = _values(chassis, "name"), _values(chassis, "mgmt-ip")
                yield from (Sighting(each["name"], scoped(one, each["name"]), next(names, None)) for one in addresses)


def _values(chassis: dict[str, Any], key: str) -> Iterator[str]:
    return (str(each["value"]) for each in chassis.get(key, ()))


async def _printed(*argv: str) -> str:
    """Return what a program prints; nothing where it is not there, fails or hangs."""
    with suppress(OSError, TimeoutError):
        done = await run_command(argv, deadline_s=PROGRAM_S)
        return done.out if done.code == 0 else ""
    return ""


FIRST_SIGHT_S = 15.0
"""Deadline of the first contact; the name service and a jump host may be slow."""


class SshTarget(NamedTuple):
    """Address as ssh understands it with the user's ssh_config."""

    host: str
    port: int
    user: str


async def resolve(target: str) -> SshTarget:
    """Ask ssh what it takes this address for. Raises HostError: ssh_missing, ssh_address_wrong."""
    try:
        done = await run_command([ssh_command.SSH, "-G", "--", target], deadline_s=FIRST_SIGHT_S)
    except OSError as error:
        raise ssh_errors.ssh_missing(error.strerror or str(error)) from None
    if done.code:
        words = (done.err.strip().splitlines() or ["ssh does not understand it"])[-1]
        raise HostError(
            f"{target!r} is no address for ssh: {words}.", code="ssh_address_wrong", hint="Give HOST or USER@HOST."
        )
    found = dict(line.split(" ", 1) for line in done.out.splitlines() if " " in line)
    return SshTarget(found.get("hostname", target), int(found.get("port", "22")), found.get("user", ""))


async def ask_host_key(name: str, target: str, port: int) -> str:
    """Return the key that the box shows, as `ssh-ed25519 AAAA…`. Raises HostError: ssh_missing, node_unreachable."""
    with tempfile.TemporaryDirectory(prefix="sparkdash-") as folder:
        known = Path(folder) / "known_hosts"
        argv = ssh_command.first_sight(target, port, name, known)
        node = Node(name=name, ssh=target, port=port, host_key="")
        try:
            done = await run_command(argv, deadline_s=FIRST_SIGHT_S)
        except TimeoutError:
            raise ssh_errors.unreachable(node, f"no answer for {FIRST_SIGHT_S:.0f} s", registered=False) from None
        except OSError as error:
            raise ssh_errors.ssh_missing(error.strerror or str(error)) from None
        seen = known.read_text().split() if known.exists() else []
    if len(seen) < 3:
        raise ssh_errors.unreachable(node, ssh_errors.last_words(done.err), registered=False)
    return f"{seen[1]} {seen[2]}"
