"""Launches of one engine over several nodes: a head that serves, and workers that compute their share.

Owns: the containers of all nodes, each node's variables, the devices of its link, and what such a launch needs. Must
not know: any engine's flags but the sizes of its parallelism, how nodes are reached. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkdash.domain.container import LABEL_HEAD, ContainerSpec
from sparkdash.domain.node import RANK_ARGS, Link, NodeLaunch
from sparkdash.domain.profile import MOST_NODES, Profile
from sparkdash.engines.argv import lookup, parse_token_count
from sparkdash.engines.containers import NO_VARIABLES, SHM_SIZE, LaunchContext, build_container
from sparkdash.errors import ProfileError

RDMA_DEVICES = "/dev/infiniband"
"""Folder of the RDMA devices; every published recipe for two Sparks hands it in."""

NO_LOCK_LIMIT = "memlock=-1:-1"
"""RDMA pins its buffers. Under the usual limit of 8 MiB their registration fails."""

WAYS = (("tensor-parallel-size", "tp-size", "tp"), ("pipeline-parallel-size", "pp-size", "pp"))
"""Flags that spread weights and KV cache over devices, by their synonyms."""


def ways(profile: Profile) -> int:
    """Return the number of devices over which weights and KV cache are spread."""
    found = 1
    for synonyms in WAYS:
        found *= parse_token_count(lookup(profile.args, *synonyms)) or 1
    return found


def build_containers(
    profile: Profile, launch: LaunchContext, commands: Sequence[Sequence[str]], env: Sequence[Mapping[str, str]] = ()
) -> ContainerSpec:
    """Build the head's container with those of its workers; each node of the launch has one command, in order.

    `env`: variables of the dialect by node.

    Raises:
        ProfileError: as for one node.
    """
    built = [
        _container(profile, launch, rank, command, env[rank] if env else NO_VARIABLES)
        for rank, command in enumerate(commands)
    ]
    head = built[0]
    workers = tuple(
        spec.replace(name=worker_name(head.name, rank), labels={**spec.labels, LABEL_HEAD: head.name})
        for rank, spec in enumerate(built[1:], start=1)
    )
    return head.replace(workers=workers)


def worker_name(head: str, rank: int) -> str:
    return f"{head}-worker{rank}"


def refuse_unfit(profile: Profile, launch: LaunchContext) -> None:
    """Refuse a profile for several nodes that this launch cannot start.

    Raises:
        ProfileError: more nodes than sparkdash supports; fewer nodes in the launch; ranks that are not one a node;
            arguments that sparkdash sets.
    """
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
        raise needs_nodes(profile, len(launch.nodes) or 1)


def needs_nodes(profile: Profile, known: int) -> ProfileError:
    return ProfileError(
        f"{profile.name} needs {profile.nodes} nodes, and sparkdash knows {known}.",
        code="needs_two_nodes",
        hint="`sparkdash nodes add NAME --ssh USER@HOST` adds a box.",
    )


def link_environment(node: NodeLaunch) -> dict[str, str]:
    """Return the variables that bind NCCL, Gloo, UCX and TensorPipe to the node's link.

    Interface names and GID indices differ from box to box, so that each node gets its own.
    """
    link = node.link
    if link is None:
        return {}
    # One interface for all four: dgx-spark-playbooks@0db7c14, nvidia/vllm.
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES")
    return dict.fromkeys(names, link.interface) | _rdma_environment(link, node.twins)


def _rdma_environment(link: Link, twins: Sequence[str]) -> dict[str, str]:
    """Variables of NCCL's RDMA transport: sparkrun@0041b8f sets the same."""
    if link.hca is None:  # NCCL must not pick an RDMA device of another network
        return {"NCCL_IB_DISABLE": "1"}
    found = {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": ",".join((link.hca, *twins))}
    # NCCL chooses the first GID without it; RoCEv2 over IPv4 is 3 on most boxes, 5 on some (EXL3#47).
    return found if link.gid_index is None else found | {"NCCL_IB_GID_INDEX": str(link.gid_index)}


def _container(
    profile: Profile, launch: LaunchContext, rank: int, command: Sequence[str], env: Mapping[str, str]
) -> ContainerSpec:
    node = launch.nodes[rank]
    variables = {**link_environment(node), **env}
    spec = build_container(profile, launch, command, shm_size=SHM_SIZE, env=variables, rank=rank)
    if not launch.containerised or node.link is None or node.link.hca is None:
        return spec
    return spec.replace(devices=(*spec.devices, RDMA_DEVICES), ulimits=(NO_LOCK_LIMIT,))
