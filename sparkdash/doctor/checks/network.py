"""Checks of the ports, and of the links between two boxes.

Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from sparkdash.doctor.check import CheckResult, check, fail, note, ok, warn
from sparkdash.doctor.facts import Facts, Listener
from sparkdash.units import MIB

STATES = "/sys/class/infiniband/*/ports/*/state"
RATES = "/sys/class/infiniband/*/ports/*/rate"
FEW = 10
"""Least number of free engine ports; fewer may run out on a busy day."""

_FUNCTION = re.compile(r"f\d+$")


@check("port", "The gateway's port is free, or sparkdash's own daemon has it.", listeners=True)
def port(facts: Facts) -> Iterator[CheckResult]:
    """Find the listener of the gateway's port; port 0 means any free one."""
    wanted = facts.settings.port
    holders = [one for one in facts.heard() if one.port == wanted and wanted]
    if not wanted:
        yield ok("The settings take any free port.")
    elif not holders:
        yield ok(f"{wanted} is free.")
    elif _daemons(holders[0], facts):
        yield ok(f"{wanted} is held by the sparkdash daemon.")
    else:
        yield fail(
            f"{wanted} is held by {_who(holders[0])}: the daemon cannot listen there.",
            "Another port in config.toml or SPARKDASH_PORT.",
        )


@check("engine-ports", "There are free ports for engines.", listeners=True)
def engine_ports(facts: Facts) -> Iterator[CheckResult]:
    """Count the free ports in the range of the settings."""
    first, last = facts.settings.engine_ports
    held = {one.port: one for one in facts.heard() if first <= one.port <= last}
    free = last - first + 1 - len(held)
    about = f"{free} of {first}-{last} free"
    if held:
        about += "; held: " + ", ".join(f"{port} by {_who(one)}" for port, one in sorted(held.items())[:3])
    if free < FEW:
        yield warn(f"{about}.", "Widen engine_ports in config.toml.")
    else:
        yield ok(f"{about}.")


def _daemons(holder: Listener, facts: Facts) -> bool:
    daemon = facts.daemon
    if daemon is None or daemon.problem is not None:
        return False
    return holder.pid == daemon.pid if holder.pid is not None else f":{holder.port}/" in f"{daemon.url}/"


def _who(holder: Listener) -> str:
    if holder.pid is None:
        return "a program of another user"
    return f"{holder.program or 'a program'} (pid {holder.pid})"


def active(facts: Facts) -> list[str]:
    """RDMA devices whose link is up."""
    return [_device(path) for path, state in facts.matching(STATES).items() if "ACTIVE" in state]


@check("roce", "The RDMA links to a second box, if any.", reads=(STATES, RATES))
def roce(facts: Facts) -> Iterator[CheckResult]:
    """Check both devices of each socket, one per PCIe half: the full rate needs both up."""
    states = {_device(path): state.strip() for path, state in facts.matching(STATES).items()}
    rates = {_device(path): rate.strip() for path, rate in facts.matching(RATES).items()}
    if not states:
        yield note("No RDMA device (/sys/class/infiniband).")
        return
    up = active(facts)
    about = ", ".join(f"{device} {rates.get(device, '-')}" for device in up)
    halves = [device for device in _halves(states, set(up)) if device not in up]
    if halves:
        down = ", ".join(f"{device} ({states[device]})" for device in halves)
        yield warn(
            f"Half a cable's rate: up {about}; down {down} (/sys/class/infiniband).",
            f"Bring up the interfaces of {', '.join(halves)}; `ibdev2netdev` names them.",
        )
    elif up:
        yield ok(f"Up: {about} (/sys/class/infiniband).")
    else:
        yield ok(f"No cable: {', '.join(states)} are down (/sys/class/infiniband).")


@check("memlock", "Locked memory, which RDMA between two boxes needs.", reads=(STATES,))
def memlock(facts: Facts) -> Iterator[CheckResult]:
    """Check the limit of locked memory, which a rootless container cannot raise above the user's own."""
    if facts.memlock is None:
        yield ok("No limit (ulimit -l).")
    elif not active(facts):
        yield ok(f"At most {facts.memlock // MIB} MiB (ulimit -l); only RDMA needs more, and no link is up.")
    else:
        yield note(
            f"RDMA links are up, but at most {facts.memlock // MIB} MiB may be locked (ulimit -l): NCCL uses sockets.",
            f"echo '{facts.path('{user}')} - memlock unlimited' | sudo tee /etc/security/limits.d/rdma.conf",
        )


def _halves(devices: Iterable[str], up: set[str]) -> Iterator[str]:
    """Devices of sockets with one device up: rocep1s0f1 and roceP2p1s0f1 are one socket."""
    sockets: dict[str, list[str]] = defaultdict(list)
    for device in devices:
        function = _FUNCTION.search(device)
        sockets[function[0] if function else device].append(device)
    for socket in sockets.values():
        if up & set(socket):
            yield from socket


def _device(path: str) -> str:
    return path.split("/")[4]
