"""Checks of the network between two boxes: link, MTU, route, subnets.

Each QSFP port of a DGX Spark is two interfaces, one for each PCIe x4 link of about 100 Gb/s (ServeTheHome).

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from sparkdash.doctor.check import CheckResult, fail, note, ok, unknown, warn
from sparkdash.doctor.nodes.check import pair_check
from sparkdash.doctor.nodes.facts import BoxFacts, PairFacts
from sparkdash.doctor.nodes.readings import addresses_of, parse_rdma_ports, parse_route_device
from sparkdash.domain.node import Link
from sparkdash.nodes.link.common import SharedLink, crowded_networks, network_of

JUMBO = 9000
EXAMPLE = "192.168.100.{host}/24"
NETPLAN = "/etc/netplan/40-cx7.yaml"
"""File that NVIDIA's playbook connect-two-sparks writes."""


@pair_check("link", "The boxes share a network, and it is the fast one.", reads=("hcas", "addresses"))
def link(pair: PairFacts) -> Iterator[CheckResult]:
    """Find the interfaces that face each other, and the halves of a port that have no address."""
    links = pair.shared()
    if not links:
        yield _no_link(pair)
        return
    yield from (_down(pair, each) for each in links if not each.up)
    yield from (_judged(pair, each) for each in links[:1] if each.up)
    for box in pair.boxes:
        yield from _halves(box)


def _judged(pair: PairFacts, best: SharedLink) -> CheckResult:
    about = f"{_ends(pair, best)} in {network_of(best.here)}{_rate(best)}"
    if best.fast:
        return ok(f"{about}.")
    if best.rate_gbit_s is None:
        return unknown(f"{about}: the kernel tells no rate.", f"sparkdash nodes bench {pair.there.name}")
    return warn(
        f"{about}: the only link is a slow one.",
        f"Give both ends of the QSFP cable an address in {NETPLAN}, as {EXAMPLE.format(host=1)} and .2; then: "
        "sudo netplan apply",
    )


def _down(pair: PairFacts, shared: SharedLink) -> CheckResult:
    box, end = (pair.here, shared.here) if shared.here.up is False else (pair.there, shared.there)
    return fail(
        f"{end.interface} of {box.shown} ({end.address}) is down.",
        f"Check the cable; then: {box.command(f'sudo ip link set {end.interface} up')}",
    )


def _ends(pair: PairFacts, shared: SharedLink) -> str:
    return (
        f"{pair.here.shown} {shared.here.interface} ({shared.here.address}) and "
        f"{pair.there.shown} {shared.there.interface} ({shared.there.address})"
    )


def _rate(shared: SharedLink) -> str:
    return "" if shared.rate_gbit_s is None else f", {shared.rate_gbit_s:g} Gb/s"


def _no_link(pair: PairFacts) -> CheckResult:
    chosen = pair.there.node
    if chosen and (end := chosen.address or chosen.interface):
        return fail(
            f"This box shares no network with {end} of {chosen.name}, as nodes.toml names.",
            f"Correct address or interface of {chosen.name} in nodes.toml; `ip -br address` shows those there are.",
        )
    listed = "; ".join(f"{box.shown}: {_listed(box)}" for box in pair.boxes)
    return fail(
        f"The boxes share no network ({listed}).",
        f"Give both ends of the cable an address in {NETPLAN}, as {EXAMPLE.format(host=1)} and .2; "
        "then: sudo netplan apply",
    )


def _listed(box: BoxFacts) -> str:
    return ", ".join(f"{each.interface} {each.address}/{each.prefix}" for each in box.known().links) or "no address"


def _halves(box: BoxFacts) -> Iterator[CheckResult]:
    """Interfaces of active RDMA ports without an IPv4 address: that half of the port carries nothing."""
    addresses = addresses_of(box.section("addresses"))
    active = [port for port in parse_rdma_ports(box.section("hcas")) if port.active]
    bare = [name for port in active for name in port.netdevs if not addresses.get(name)]
    if bare and len(bare) < sum(len(port.netdevs) for port in active):
        yield note(
            f"{', '.join(bare)} of {box.shown} has a cable and no address: a QSFP port is two interfaces of about 100 "
            "Gb/s each.",
            box.command(f"sudo ip address add {EXAMPLE.replace('100', '101').format(host='N')} dev {bare[0]}"),
        )


@pair_check("mtu", f"Both ends of the link have the same MTU, {JUMBO} on a fast one.")
def mtu(pair: PairFacts) -> Iterator[CheckResult]:
    """Compare the MTUs: packets beyond the smaller one are lost, and 1500 bytes cost a fast link half its rate."""
    for shared in pair.shared() or (pair.link(),):
        here, there = shared.here.mtu, shared.there.mtu
        about = f"{pair.here.shown} {shared.here.interface} {here}, {pair.there.shown} {shared.there.interface} {there}"
        if here is None or there is None:
            yield unknown(f"The MTU was not told: {about}.")
        elif here != there:
            small, end = (pair.here, shared.here) if here < there else (pair.there, shared.there)
            yield fail(
                f"{about}: larger packets are lost, and collectives hang.", _set_mtu(small, end, max(here, there))
            )
        elif shared.fast and here < JUMBO:
            yield warn(
                f"{about}: 160-198 Gb/s were seen with {JUMBO}, 96 with 1500.",
                f"{_set_mtu(pair.here, shared.here, JUMBO)}; {_set_mtu(pair.there, shared.there, JUMBO)}",
            )
        else:
            yield ok(f"{about}.")


def _set_mtu(box: BoxFacts, end: Link, size: int) -> str:
    return box.command(f"sudo ip link set {end.interface} mtu {size}")


@pair_check("route", "Packets to the other box's address on the link leave over the link.", reads=("routes",))
def route(pair: PairFacts) -> Iterator[CheckResult]:
    """Compare the kernel's route with the interface that has the address."""
    shared = pair.link()
    ends = ((pair.here, shared.here, shared.there), (pair.there, shared.there, shared.here))
    for box, own, far in ends:
        device = parse_route_device(box.section("routes"), str(far.address))
        mend = f"sudo ip route replace {far.address} dev {own.interface} src {own.address}"
        if device == own.interface:
            yield ok(f"{box.shown} reaches {far.address} over {own.interface}.")
        elif device is None:
            yield fail(f"{box.shown} has no route to {far.address}.", box.command(mend))
        else:
            yield fail(
                f"{box.shown} reaches {far.address} over {device}, and not over {own.interface}.", box.command(mend)
            )


@pair_check("subnets", "No box has two interfaces in one network, which makes Ray hang.")
def subnets(pair: PairFacts) -> Iterator[CheckResult]:
    """Find networks with several interfaces of one box (AINode: Ray chooses the wrong one and waits for ever)."""
    crowded = [(box, *each) for box in pair.boxes for each in crowded_networks(box.known())]
    for box, network, names in crowded:
        yield warn(
            f"{' and '.join(names)} of {box.shown} are both in {network}: Ray hangs, and replies take the wrong way.",
            box.command(f"sudo ip address flush dev {names[-1]}"),
        )
    if not crowded:
        yield ok("Each interface has a network of its own.")
