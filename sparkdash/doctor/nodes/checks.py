"""Checks of each node and of the link between two: what must be equal, networks, MTU, route, RDMA, firewall. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparkdash.doctor.check import CheckResult, fail, note, ok, unknown, version_numbers, warn
from sparkdash.doctor.containers import OLDEST
from sparkdash.doctor.memory import WEDGED, against_reserve, kept_for_handover
from sparkdash.doctor.nodes.pair import (
    BoxReadings,
    ClusterReadings,
    PairReadings,
    RdmaPort,
    addresses_of,
    box_check,
    cluster_check,
    pair_check,
    parse_image,
    parse_rdma_ports,
    parse_route_device,
)
from sparkdash.doctor.services import room_for_weights
from sparkdash.domain.cluster import Topology, groups, topology_of
from sparkdash.domain.node import Link
from sparkdash.domain.profile import Profile
from sparkdash.host.kernel_figures import parse_meminfo
from sparkdash.nodes.shared_links import SharedLink, common_links, crowded_networks, network_of
from sparkdash.units import duration, gib, size


@box_check("podman", "The container runtime is there and new enough.")
def podman(box: BoxReadings) -> Iterator[CheckResult]:
    version = box.known().runtime_version
    if box.settings.runtime == "process":
        yield note("The settings run engines as plain processes; podman is not needed.")
    elif version is None:
        package = "podman" if box.settings.runtime == "podman" else "docker.io"
        yield fail(
            f"{box.settings.runtime} is not installed or does not answer.", box.command(f"sudo apt install {package}")
        )
    elif box.settings.runtime == "podman" and version_numbers(version) < OLDEST:
        words = ".".join(map(str, OLDEST))
        yield warn(
            f"podman {version}; sparkdash was run with {words} and newer.", box.command("sudo apt upgrade podman")
        )
    else:
        yield ok(f"{box.settings.runtime} {version}.")


@box_check("memory", "Memory that engines can get.", reads=("memory",))
def memory(box: BoxReadings) -> Iterator[CheckResult]:
    read = parse_meminfo(str(box.section("memory")["meminfo"]))
    yield against_reserve(read, box.settings, box.command("ps -eo rss,pid,comm --sort -rss | head"))


@box_check("handover", "No memory is kept for kexec handover (KHO), where RDMA cannot pin it.", reads=("memory",))
def handover(box: BoxReadings) -> Iterator[CheckResult]:
    yield kept_for_handover(str(box.section("memory")["meminfo"]))


@box_check("disk", "There is room for images and weights.")
def disk(box: BoxReadings) -> Iterator[CheckResult]:
    """Check the free bytes of the fuller of both file systems."""
    free = box.known().disk_free
    if free is None:
        yield unknown("The free space was not told.")
    else:
        look = box.command("df -h ~ /var/lib/containers; podman image ls")
        yield room_for_weights(f"{gib(free)} free", free, look)


@box_check("linger", "Engines and memory guard live on when the last ssh session ends.", reads=("linger",))
def linger(box: BoxReadings) -> Iterator[CheckResult]:
    """Check lingering: otherwise logind ends a user's processes with the last session, so with a lost connection."""
    section = box.section("linger")
    if section["uid"] == 0:
        yield ok("Not needed: engines run as root.")
    elif not section["logind"]:
        yield ok("Not needed: there is no systemd-logind.")
    elif section["lingers"]:
        yield ok(f"{section['user']} lingers (/var/lib/systemd/linger).")
    else:
        yield warn(
            f"{section['user']} does not linger: engines end when the connection of ssh does.",
            box.command("loginctl enable-linger"),
        )


SKEW_S, FAR_S = 2.0, 60.0
"""Seconds between the clocks that confuse the order of logs, and that break what checks times."""


UPGRADE = "sudo apt update && sudo apt full-upgrade, then reboot"


@pair_check("driver", "Both boxes run the same NVIDIA driver; different ones were 2.4 times slower.")
def driver(pair: PairReadings) -> Iterator[CheckResult]:
    """Compare the drivers. An owner of two boxes measured 2.4x with different ones (al-engr)."""
    here, there = (box.known().driver for box in pair.boxes)
    if here is None and there is None:
        yield note("Neither box tells its driver: no NVIDIA GPU was found.")
    elif here is None or there is None:
        mute = pair.here if here is None else pair.there
        yield warn(f"{mute.shown} tells no driver, the other one {here or there}.", mute.command("nvidia-smi"))
    else:
        yield _alike(pair, "driver", here, there, "a pair with different drivers was 2.4 times slower (al-engr)")


def _alike(pair: PairReadings, what: str, here: str, there: str, harm: str) -> CheckResult:
    if here == there:
        return ok(f"{what} {here} on both.")
    older = pair.here if version_numbers(here) < version_numbers(there) else pair.there
    about = f"{what} {here} on {pair.here.shown}, {there} on {pair.there.shown}"
    return warn(f"{about}: {harm}.", older.command(UPGRADE))


@pair_check("kernel", "Both boxes run the same kernel, and none that failed on others' boxes.")
def kernel(pair: PairReadings) -> Iterator[CheckResult]:
    """Compare the kernels: the slowest box holds up the others, and a mismatched one cost an owner 140 % of prefill."""
    told = [(box, found) for box in pair.boxes if (found := box.known().kernel)]
    if len(told) == 2:
        yield _alike(pair, "kernel", told[0][1], told[1][1], "the slower one holds up the other at each step")
    for box, found in told:
        if found == WEDGED[0]:
            yield warn(f"kernel {found} of {box.shown} {WEDGED[1]}.", box.command(UPGRADE))


@pair_check("clock", "The clocks agree.")
def clock(pair: PairReadings) -> Iterator[CheckResult]:
    offset = pair.there.known().clock_offset_s
    if offset is None:
        yield unknown("The offset of the clocks was not measured.")
        return
    side = "ahead" if offset > 0 else "behind"
    about = f"The clock of {pair.there.shown} is {duration(abs(offset))} {side}"
    fix = pair.there.command("sudo timedatectl set-ntp true")
    if abs(offset) > FAR_S:
        yield warn(f"{about}: logs of both cannot be compared, and certificates may be refused.", fix)
    elif abs(offset) > SKEW_S:
        yield warn(f"{about}: the order of both logs is wrong.", fix)
    else:
        yield ok(f"{abs(offset):.2f} s apart.")


SHORT = 12


@pair_check("image", "Profiles for several nodes have the same image on both boxes.", reads=("images",))
def image(pair: PairReadings) -> Iterator[CheckResult]:
    """Compare images by id, the digest of their configuration.

    The digest of the manifest is not compared: `podman load` makes a new one for the same image.
    """
    if pair.settings.runtime == "process":
        yield note("The settings run engines as plain processes, without images.")
        return
    profiles = [each for each in pair.wanted() if each.image]
    if not profiles:
        yield note("No profile runs on several nodes.")
        return
    sections = [box.section("images") for box in pair.boxes]
    for name in sorted({str(each.image) for each in profiles}):
        users = [each for each in profiles if each.image == name]
        yield _compared(pair, name, users, *sections)


def _compared(
    pair: PairReadings, name: str, users: list[Profile], here: Mapping[str, Any], there: Mapping[str, Any]
) -> CheckResult:
    mine, other = parse_image(here, name), parse_image(there, name)
    about = f"{name} ({', '.join(each.name for each in users)})"
    if mine is None and other is None:
        return note(f"Neither box has {about}.", f"sparkdash pull {users[0].name}")
    if mine is None or other is None:
        lacking, having = (pair.here, pair.there) if mine is None else (pair.there, pair.here)
        return note(
            f"{having.shown} has {about}, {lacking.shown} does not: the first start brings it there.",
            f"sparkdash nodes copy {users[0].name} --to {lacking.name} --image-only"
            if lacking is pair.there
            else f"sparkdash pull {users[0].name}",
        )
    if mine[0] == other[0]:
        return ok(f"{about} is {mine[0][:SHORT]} on both.")
    return fail(
        f"{about} is {_words(*mine)} on {pair.here.shown} and {_words(*other)} on {pair.there.shown}.",
        f"sparkdash nodes copy {users[0].name} --to {pair.there.name} --image-only",
    )


def _words(image_id: str, digest: str | None) -> str:
    return image_id[:SHORT] + (f" (digest {digest.removeprefix('sha256:')[:SHORT]})" if digest else "")


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
    here, there = best.here, best.there
    ends = f"{pair.here.shown} {here.interface} ({here.address})"
    ends += f" and {pair.there.shown} {there.interface} ({there.address})"
    rate = "" if best.rate_gbit_s is None else f", {best.rate_gbit_s:g} Gb/s"
    about = f"{ends} in {network_of(here)}{rate}"
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


@cluster_check("topology", "The cables make what nodes.toml declares, and all boxes share a network.")
def topology(cluster: ClusterReadings) -> Iterator[CheckResult]:
    """Name the cables, where three or more boxes have any, and hold them against the declared topology."""
    about, found = _connected(cluster)
    declared = cluster.declared
    if declared is not None and declared != found and {declared, found} != {Topology.DIRECT, Topology.SWITCH}:
        yield fail(
            f'nodes.toml declares `topology = "{declared}"`, and {about}.',
            f"Check the cables, and their addresses in {NETPLAN} (two networks a cable), or correct nodes.toml.",
        )
    elif common_links(list(cluster.links.values())) is None:
        yield fail(
            f"{about}, and no network has all boxes: ranks do not find each other.",
            "Give the 10 GbE ports (enP7s7) of all boxes addresses of one network.",
        )
    else:
        yield ok(f"{about}.")


def _connected(cluster: ClusterReadings) -> tuple[str, Topology | None]:
    """Say how all boxes are connected; None where no engine could run on all."""
    shown, cables = {box.name: box.shown for box in cluster.boxes}, cluster.cables
    whole = next(iter(groups(list(shown), len(shown), cables, [*Topology])), None)
    if whole is None:
        pairs = ", ".join(f"{one.shown} - {other.shown}" for one, other in cluster.cabled())
        return f"the cables ({pairs}) do not join all boxes", None
    found = topology_of(whole, cables)
    names = (" - " if cables else ", ").join(map(shown.__getitem__, whole))
    return f"{names} make a {found}" if cables else f"no cables of two are seen between {names}", found


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


@pair_check("path", "Packets of full size reach the other end of the link, and none is lost.", reads=("paths",))
def path(pair: PairReadings) -> Iterator[CheckResult]:
    """Judge pings of full size that may not be cut: a switch or one cable may do worse than the ends tell."""
    found = pair.here.section("paths")
    for shared in pair.shared():
        if told := found.get(str(shared.there.address)):
            way = f"{pair.here.shown} {shared.here.interface} to {pair.there.shown} {shared.there.interface}"
            yield _arrived(way, told)


def _arrived(way: str, told: Mapping[str, Any]) -> CheckResult:
    size, sent, whole, small = (int(told[key]) for key in ("size", "sent", "whole", "small"))
    if not small:
        return unknown(f"{way}: no answer to ping.")
    if not whole:
        return fail(
            f"{way}: packets of {size} bytes do not pass, smaller ones do: collectives hang.",
            f"Set the MTU of the switch's ports to {JUMBO} or more, or that of both ends to the switch's.",
        )
    if lost := 2 * sent - whole - small:
        return warn(
            f"{way}: {lost} of {2 * sent} packets were lost: each loss stops RDMA until it is sent again.",
            "Push the cable in anew or change it; behind a switch look at the port's errors.",
        )
    return ok(f"{way}: {sent} of {sent} packets of {size} bytes.")


@pair_check("route", "Packets to the other box's address on the link leave over the link.", reads=("routes",))
def route(pair: PairReadings) -> Iterator[CheckResult]:
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


ACTIVE_MTU = 4096
"""Largest packet of RoCE; it is 1024 unless the MTU was large when the port came up (0xSero/local-ai-registry#55)."""


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
    if (port.active_mtu or ACTIVE_MTU) < ACTIVE_MTU < (end.mtu or 0):
        return _small_packets(box, end, port)
    rate = "" if port.rate_gbit_s is None else f", {port.rate_gbit_s:g} Gb/s"
    return ok(f"{end.hca} of {box.shown} is active behind {end.interface}{rate}.")


def _small_packets(box: BoxReadings, end: Link, port: RdmaPort) -> CheckResult:
    return warn(
        f"{end.hca} of {box.shown} sends {port.active_mtu} bytes a packet (active_mtu) in spite of MTU {end.mtu}: "
        "prefill over four boxes was 40 % slower.",
        box.command(f"sudo ip link set {end.interface} down; sudo ip link set {end.interface} up"),
    )


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


def _hcas(box: BoxReadings) -> list[str]:
    return [port.hca for port in _ports(box)]


def _has_each(names: Sequence[str], value: str) -> bool:
    """Whether a name begins with each of the listed ones; NCCL's lists look like `=mlx5_0:1,mlx5_1`."""
    wanted = [each.lstrip("=").partition(":")[0] for each in value.split(",")]
    return all(any(name.startswith(each) for name in names) for each in wanted)


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
