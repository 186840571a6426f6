"""Launches of one engine over several nodes: a head that serves, and workers that compute their share. Pure."""

import itertools
import re
from collections.abc import Mapping, Sequence

from sparkdash.domain.container import LABEL_HEAD, ContainerSpec
from sparkdash.domain.node import RANK_ARGS, NodeLaunch
from sparkdash.domain.profile import MOST_NODES, PLACEHOLDER, Profile
from sparkdash.engines.argv import lookup, parse_token_count
from sparkdash.engines.containers import NO_VARIABLES, SHM_SIZE, LaunchContext, build_container
from sparkdash.errors import ProfileError

RDMA_DEVICES = "/dev/infiniband"
"""Folder of the RDMA devices; every published recipe for two Sparks hands it in."""

NO_LOCK_LIMIT = "memlock=-1:-1"
"""RDMA pins its buffers. Under the usual limit of 8 MiB their registration fails."""

LINK_VARIABLES = (
    "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include", "TP_SOCKET_IFNAME",
    "UCX_NET_DEVICES",
)  # fmt: skip
"""Variables that name an interface or an RDMA device."""
GID_INDEX = "NCCL_IB_GID_INDEX"
ADDRESSES = ("VLLM_HOST_IP", "HOST_IP", "MASTER_ADDR", "RAY_ADDRESS")
"""Variables with an address, which sparkdash sets for each node at a start."""
ROCE_DEVICES, RING_ONLY = "B12X_ROCE_HCA", "NCCL_SWITCHLESS_RING_ONLY"
OF_EACH_NODE = frozenset(
    {
        *LINK_VARIABLES, *ADDRESSES, GID_INDEX, RING_ONLY, "B12X_ROCE_PEER_HCA_MAP", "B12X_ROCE_OPPOSITE_PATHS",
        "MASTER_PORT", "MN_IF_NAME", "NCCL_IB_ADDR_RANGE",
    }
)  # fmt: skip
"""Variables that each rank of a recipe has its own value of, and sparkdash finds."""

WAYS = (("tensor-parallel-size", "tp-size", "tp"), ("pipeline-parallel-size", "pp-size", "pp"))
"""Flags that spread weights and KV cache over devices, by their synonyms."""


def with_parallel(profile: Profile, flags: Mapping[str, str]) -> Profile:
    """Add the profile's `parallel` to its arguments by the engine's flags; a flag that is among them stays."""
    sizes = {
        flags[way]: size > 1 if flags[way].startswith("enable-") else size
        for way, size in profile.parallel.items()
        if way in flags
    }
    return profile.replace(args={**sizes, **profile.args}) if sizes else profile


def ways(profile: Profile) -> int:
    """Return the number of devices over which weights and KV cache are spread."""
    found = 1
    for synonyms in WAYS:
        found *= parse_token_count(lookup(profile.args, *synonyms)) or 1
    return found


def build_containers(
    profile: Profile, launch: LaunchContext, commands: Sequence[Sequence[str]], env: Sequence[Mapping[str, str]] = ()
) -> ContainerSpec:
    """Build the head's container with its workers', by a command and variables of the dialect for each node."""
    built = [
        _container(profile, launch, rank, command, env[rank] if env else NO_VARIABLES)
        for rank, command in enumerate(commands)
    ]
    head = built[0]
    workers = tuple(
        spec.replace(name=f"{head.name}-worker{rank}", labels={**spec.labels, LABEL_HEAD: head.name})
        for rank, spec in enumerate(built[1:], start=1)
    )
    return head.replace(workers=workers)


def refuse_unfit(profile: Profile, launch: LaunchContext) -> None:
    """Refuse a profile for several nodes that this launch cannot start, by a ProfileError."""
    wanted, name = profile.nodes, profile.name
    if wanted > MOST_NODES:
        raise ProfileError(
            f"Profile {name} wants {wanted} nodes, and sparkdash starts an engine on {MOST_NODES} at most.",
            code="nodes_unsupported",
        )
    if own := sorted(key for key in profile.args if key.replace("_", "-") in RANK_ARGS):
        raise ProfileError(
            f"Profile {name} sets {', '.join(own)}, which sparkdash sets for each node.",
            code="reserved_argument",
            hint="Remove it from `args`.",
        )
    if (found := ways(profile)) != wanted:
        raise ProfileError(
            f"Profile {name} splits its model in {found}, and {wanted} nodes have one GPU each.",
            code="ranks_mismatch",
            hint=f"Set `tensor-parallel-size: {wanted}`, or tensor times pipeline parallel size to {wanted}.",
        )
    if len(launch.nodes) != wanted:
        raise ProfileError(
            f"{profile.name} needs {profile.nodes} nodes, and sparkdash knows {len(launch.nodes) or 1}.",
            code="needs_two_nodes",
            hint="`sparkdash nodes add NAME --ssh USER@HOST` adds a box.",
        )


def link_environment(launch: Sequence[NodeLaunch], rank: int) -> dict[str, str]:
    """Return the variables that bind NCCL, Gloo, UCX and TensorPipe to this node's link and devices."""
    node = launch[rank]
    if node.link is None:
        return {}
    # One interface for all four: dgx-spark-playbooks@0db7c14, nvidia/vllm.
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES")
    found = dict.fromkeys(names, node.link.interface)
    if not node.devices:  # NCCL must not pick an RDMA device of another network
        return found | {"NCCL_IB_DISABLE": "1"}
    found |= {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": ",".join(node.devices)}  # as sparkrun@0041b8f
    if node.cables:
        return found | _cabled_environment(launch)
    # NCCL chooses the first GID without it; RoCEv2 over IPv4 is 3 on most boxes, 5 on some (EXL3#47).
    return found | ({} if node.link.gid_index is None else {"NCCL_IB_GID_INDEX": str(node.link.gid_index)})


def _cabled_environment(launch: Sequence[NodeLaunch]) -> dict[str, str]:
    """Variables of a ring or line: the peer's network chooses the device (eugr/spark-vllm-docker@10fa84e).

    No GID index: a given one switches that choice off.
    """
    found = {"NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_IB_MERGE_NICS": "0", "NCCL_NET_PLUGIN": "none"}
    if len(launch) > 3 and launch[0].name in launch[-1].cables:
        # Other algorithms try boxes that share no cable. The second is of sparkring's NCCL, and nothing to others.
        found |= {"NCCL_ALGO": "Ring", RING_ONLY: "1"}
    return found


def peer_hca_map(launch: Sequence[NodeLaunch], rank: int, devices: Sequence[str]) -> str | None:
    """Return by which of `devices` the rank reaches each other one: `1=0/2,2=0/3,3=1/3`. None: unknown.

    Opposite boxes of a ring of four are reached by one half of the port each way round, as sparkring@008ee5d has it.
    """
    node, count = launch[rank], len(launch)
    if not node.cables:
        return f"{1 - rank}={'/'.join(map(str, range(len(devices))))}" if count == 2 else None
    places = {device: place for place, device in enumerate(devices)}
    found = {
        other: [places[link.hca] for link in node.cables.get(each.name, ()) if link.hca in places]
        for other, each in enumerate(launch)
        if other != rank
    }
    if count == 4:
        _reach_opposite(found, rank)
    if not all(found.values()):
        return None
    return ",".join(f"{other}={'/'.join(map(str, sorted(by)))}" for other, by in sorted(found.items()))


def _reach_opposite(found: dict[int, list[int]], rank: int) -> None:
    """Add the devices to the opposite rank of four, where each neighbour is reached by two."""
    after, before, opposite = (rank + 1) % 4, (rank - 1) % 4, (rank + 2) % 4
    if len(found[after]) == len(found[before]) == 2:
        first, second = (after, before) if rank < opposite else (before, after)
        found[opposite] = [min(found[first]), max(found[second])]


def _words(launch: Sequence[NodeLaunch], rank: int) -> dict[str, str | None]:
    """Values of NODE_WORDS on the node of this rank; None: not known there."""
    node = launch[rank]
    links = [*itertools.chain(*node.cables.values())] or ([node.link] if node.link else [])
    indices = {link.gid_index for link in links if link.gid_index is not None}
    return {
        "hca": ",".join(node.devices) or None,
        "gid_index": str(indices.pop()) if len(indices) == 1 else None,
        "peer_hca_map": peer_hca_map(launch, rank, node.devices) if node.devices else None,
        "rank": str(rank),
        "head": launch[0].address,
    }


def _filled(env: Mapping[str, str], profile: Profile, launch: Sequence[NodeLaunch], rank: int) -> dict[str, str]:
    """Fill the node's words into its variables. Raises ProfileError: word_unknown."""
    words = _words(launch, rank)

    def fill(hit: re.Match[str]) -> str:
        if hit[1] not in words:
            return hit[0]
        if (value := words[hit[1]]) is None:
            raise ProfileError(
                f"{profile.name} names {hit[0]} in `env`, which is not known for {launch[rank].name}.",
                code="word_unknown",
                hint="Write the value itself under `env_by_node`; `sparkdash nodes --json` shows what was found.",
            )
        return value

    return {name: PLACEHOLDER.sub(fill, value) for name, value in env.items()}


def _container(
    profile: Profile, launch: LaunchContext, rank: int, command: Sequence[str], env: Mapping[str, str]
) -> ContainerSpec:
    variables = {**link_environment(launch.nodes, rank), **env}
    spec = build_container(profile, launch, command, shm_size=SHM_SIZE, env=variables, rank=rank)
    spec = spec.replace(env=_filled(spec.env, profile, launch.nodes, rank))
    if not launch.containerised or not launch.nodes[rank].devices:
        return spec
    return spec.replace(devices=(*spec.devices, RDMA_DEVICES), ulimits=(NO_LOCK_LIMIT,))
