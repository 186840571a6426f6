"""Checks of the link between two boxes: networks, MTU, route, RDMA, firewall.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkdash.doctor.check import CheckResult, fail, note, ok, unknown, warn
from sparkdash.doctor.nodes.pair import (
    BoxReadings,
    PairReadings,
    RdmaPort,
    ReachTrial,
    addresses_of,
    box_check,
    pair_check,
    parse_rdma_ports,
    parse_route_device,
)
from sparkdash.domain.node import Link
from sparkdash.nodes.shared_links import SharedLink, crowded_networks, network_of
from sparkdash.units import size

JUMBO = 9000
EXAMPLE = "192.168.100.{host}/24"
NETPLAN = "/etc/netplan/40-cx7.yaml"
"""File that NVIDIA's playbook connect-two-sparks writes."""


@pair_check("link", "The boxes share a network, and it is the fast one.", reads=("hcas", "addresses"))
def link(pair: PairReadings) -> Iterator[CheckResult]:
    links = pair.shared()
    if not links:
        yield _no_link(pair)
        return
    yield from (_down(pair, each) for each in links if not each.up)
    yield from (_judged(pair, each) for each in links[:1] if each.up)
    for box in pair.boxes:
        yield from _halves(box)


def _judged(pair: PairReadings, best: SharedLink) -> CheckResult:
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


def _down(pair: PairReadings, shared: SharedLink) -> CheckResult:
    box, end = (pair.here, shared.here) if shared.here.up is False else (pair.there, shared.there)
    return fail(
        f"{end.interface} of {box.shown} ({end.address}) is down.",
        f"Check the cable; then: {box.command(f'sudo ip link set {end.interface} up')}",
    )


def _ends(pair: PairReadings, shared: SharedLink) -> str:
    return (
        f"{pair.here.shown} {shared.here.interface} ({shared.here.address}) and "
        f"{pair.there.shown} {shared.there.interface} ({shared.there.address})"
    )


def _rate(shared: SharedLink) -> str:
    return "" if shared.rate_gbit_s is None else f", {shared.rate_gbit_s:g} Gb/s"


def _no_link(pair: PairReadings) -> CheckResult:
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


def _listed(box: BoxReadings) -> str:
    return ", ".join(f"{each.interface} {each.address}/{each.prefix}" for each in box.known().links) or "no address"


def _halves(box: BoxReadings) -> Iterator[CheckResult]:
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
def mtu(pair: PairReadings) -> Iterator[CheckResult]:
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


def _set_mtu(box: BoxReadings, end: Link, size: int) -> str:
    return box.command(f"sudo ip link set {end.interface} mtu {size}")


@pair_check("route", "Packets to the other box's address on the link leave over the link.", reads=("routes",))
def route(pair: PairReadings) -> Iterator[CheckResult]:
    """Compare the kernel's route with the interface that has the address."""
    shared = pair.link()
    ends = ((pair.here, shared.here, shared.there), (pair.there, shared.there, shared.here))
    for box, own, far in ends:
        device = parse_route_device(box.section("routes"), str(far.address))
        fix = f"sudo ip route replace {far.address} dev {own.interface} src {own.address}"
        if device == own.interface:
            yield ok(f"{box.shown} reaches {far.address} over {own.interface}.")
        elif device is None:
            yield fail(f"{box.shown} has no route to {far.address}.", box.command(fix))
        else:
            yield fail(
                f"{box.shown} reaches {far.address} over {device}, and not over {own.interface}.", box.command(fix)
            )


@pair_check("subnets", "No box has two interfaces in one network, which makes Ray hang.")
def subnets(pair: PairReadings) -> Iterator[CheckResult]:
    """Find networks with several interfaces of one box (AINode: Ray chooses the wrong one and waits for ever)."""
    crowded = [(box, *each) for box in pair.boxes for each in crowded_networks(box.known())]
    for box, network, names in crowded:
        yield warn(
            f"{' and '.join(names)} of {box.shown} are both in {network}: Ray hangs, and replies take the wrong way.",
            box.command(f"sudo ip address flush dev {names[-1]}"),
        )
    if not crowded:
        yield ok("Each interface has a network of its own.")


PINNED = {"NCCL_IB_HCA": "hca", "NCCL_IB_GID_INDEX": "gid", "NCCL_SOCKET_IFNAME": "interface"}
PINNED |= {"GLOO_SOCKET_IFNAME": "interface"}
"""Variables of a profile that name something of one box."""
LIMITS = "/etc/security/limits.d/90-memlock.conf"


def _ports(box: BoxReadings) -> tuple[RdmaPort, ...]:
    return parse_rdma_ports(box.section("hcas"))


@pair_check("hca", "An RDMA device is active behind each end of the link.", reads=("hcas",))
def hca(pair: PairReadings) -> Iterator[CheckResult]:
    """Check devices of the link. Without them NCCL falls back to TCP sockets without a word (vllm PR#42075)."""
    ends = _rdma_ends(pair)
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


def _rdma_ends(pair: PairReadings) -> tuple[tuple[BoxReadings, Link], tuple[BoxReadings, Link]]:
    shared = pair.link()
    return (pair.here, shared.here), (pair.there, shared.there)


def _port_state(box: BoxReadings, end: Link) -> CheckResult:
    port = next((each for each in _ports(box) if each.hca == end.hca), None)
    if port is None or not port.active:
        return fail(
            f"{end.hca} of {box.shown} is {port.state if port else 'missing'}.",
            box.command(f"sudo ip link set {end.interface} up; ibstat {end.hca}"),
        )
    rate = "" if port.rate_gbit_s is None else f", {port.rate_gbit_s:g} Gb/s"
    return ok(f"{end.hca} of {box.shown} is active behind {end.interface}{rate}.")


@pair_check("gid", "Each RDMA device of the link has a RoCEv2 GID with an IPv4 address.", reads=("hcas",))
def gid(pair: PairReadings) -> Iterator[CheckResult]:
    """Report the GID index per node, and profiles that pin a name or index that one of the boxes does not have."""
    ends = [(box, end) for box, end in _rdma_ends(pair) if end.hca]
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


def _gid_indices(ends: Sequence[tuple[BoxReadings, Link]]) -> CheckResult:
    listed = ", ".join(f"{end.gid_index} on {box.shown} ({end.hca})" for box, end in ends)
    differ = len({end.gid_index for _, end in ends}) > 1
    return ok(f"GID index {listed}." + (" Each box gets its own." if differ else ""))


def _pinned(pair: PairReadings) -> Iterator[CheckResult]:
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


def _lacking(box: BoxReadings, kind: str, value: str) -> str | None:
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


def _hcas(box: BoxReadings) -> list[str]:
    return [port.hca for port in _ports(box)]


@box_check("infiniband", "Engines can be given /dev/infiniband.", reads=("devices", "hcas"))
def infiniband(box: BoxReadings) -> Iterator[CheckResult]:
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
def memlock(box: BoxReadings) -> Iterator[CheckResult]:
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


@pair_check("firewall", "Engines' ports are open between the boxes, both ways.", connects=True)
def firewall(pair: PairReadings) -> Iterator[CheckResult]:
    """Judge the trials: engines connect on ports that cannot be foretold, so the link must be open."""
    if not pair.trials:
        yield unknown("No connection was tried: the boxes share no network, see the check link.")
    for trial in pair.trials:
        yield _reached(pair, trial)


def _reached(pair: PairReadings, trial: ReachTrial) -> CheckResult:
    boxes = {box.name: box for box in pair.boxes}
    source, target = boxes[trial.source], boxes[trial.target]
    way = f"{source.shown} to {target.shown}"
    if trial.problem:
        return unknown(f"{way}: {trial.problem}")
    tried = [port for port, outcome in trial.listened.items() if not outcome.startswith("not tried")]
    closed = [port for port in tried if trial.called.get(port) != "connected"]
    if not tried:
        return unknown(f"{way}: none of the ports was free to listen on.")
    if not closed:
        return ok(f"{way}: TCP {', '.join(map(str, tried))} connected.")
    return fail(
        f"{way}: TCP {', '.join(map(str, closed))} {'is' if len(closed) == 1 else 'are'} closed "
        f"({trial.called.get(closed[0], 'no answer')}); {len(tried) - len(closed)} of {len(tried)} connected.",
        target.command(f"sudo ufw allow from {_address(pair, source)}"),
    )


def _address(pair: PairReadings, box: BoxReadings) -> str:
    shared = pair.link()
    return str((shared.here if box is pair.here else shared.there).address)
