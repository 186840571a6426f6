"""vLLM on several nodes: its own launch, one process a node (0.16 and newer), and over Ray. Pure."""

from collections.abc import Sequence

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.node import NodeLaunch
from sparkdash.domain.profile import Profile
from sparkdash.engines import nodes
from sparkdash.engines.argv import lookup
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.logs import Phrase
from sparkdash.engines.vllm import ray
from sparkdash.errors import ProfileError

BACKEND = "distributed-executor-backend"
RAY, NATIVE = "ray", "mp"

DEFAULT_RAY = ("ray",)

# Flags with their values that a headless rank refuses (vllm/entrypoints/cli/serve.py, 0.32).
_OF_SERVER = ("--host", "--port", "--api-server-count")

PHRASES = (
    *ray.PHRASES,
    Phrase("nodes", r"Launching vLLM \(v\S+\) headless multiproc executor, with head node address", 0.0),
    # Said before the rank waits for the others, and when all are there (seen in 0.32).
    Phrase("nodes", r"world_size=(?!1 )\d+ rank=\d+ local_rank=\d+ distributed_init_method=\S+ backend=\w+"),
    Phrase("nodes", r"rank \d+ in world size (?!1 )\d+ is assigned as DP rank", 1.0),
    Phrase("nodes", r"Connecting to existing Ray cluster at address"),
    Phrase("nodes", r"Waiting for creating a placement group of specs for"),
)
"""Lines of a start on several nodes; a worker says nothing after its weights and graphs."""


def build_containers(profile: Profile, launch: LaunchContext, command: Sequence[str]) -> ContainerSpec:
    """Build the containers of all nodes from the command for one. Raises ProfileError: it cannot be started there."""
    nodes.refuse_unfit(profile, launch)
    backend = lookup(profile.args, BACKEND) or NATIVE
    # Ranks tell each other this address: https://docs.vllm.ai/en/stable/serving/parallelism_scaling
    env = [
        {"VLLM_HOST_IP": node.address} | _peer_map(profile, launch.nodes, rank)
        for rank, node in enumerate(launch.nodes)
    ]
    if backend == RAY:
        if len(launch.nodes) > 3 and launch.nodes[0].cables:
            raise ProfileError(
                f"{profile.name} is started over Ray, which does not keep its ranks in the order of the cables.",
                code="nodes_unsupported",
                hint=f"Write `{BACKEND}: mp`, or `topologies: [switch]`.",
            )
        variables = [{**ray.ENVIRONMENT, **one} for one in env]
        return nodes.build_containers(profile, launch, _over_ray(profile, launch, command), variables)
    if backend == NATIVE:
        return nodes.build_containers(profile, launch, _native(profile, launch, command), env)
    raise ProfileError(
        f"Profile {profile.name} has the executor {backend!r}, which sparkdash does not start on several nodes.",
        code="nodes_unsupported",
        hint=f"Write `{BACKEND}: {RAY}`, or leave it out for vLLM's own launch.",
    )


def _peer_map(profile: Profile, launch: Sequence[NodeLaunch], rank: int) -> dict[str, str]:
    """Return which of the ROCE_DEVICES reach each rank; two ways to the opposite one (sparkring@008ee5d)."""
    devices = profile.env.get(nodes.ROCE_DEVICES, "").replace("{hca}", ",".join(launch[rank].devices))
    found = nodes.peer_hca_map(launch, rank, devices.split(",")) if devices else None
    if found is None:
        return {}
    opposite = {"B12X_ROCE_OPPOSITE_PATHS": "2"} if len(launch) == 4 else {}
    return {"B12X_ROCE_PEER_HCA_MAP": found} | opposite


def _over_ray(profile: Profile, launch: LaunchContext, command: Sequence[str]) -> list[list[str]]:
    head, *workers = launch.nodes
    program = profile.ray_command or DEFAULT_RAY
    return [
        ray.head_command(command, launch.nodes, launch.master_port, program),
        *(ray.worker_command(node, head, launch.master_port, program) for node in workers),
    ]


def _native(profile: Profile, launch: LaunchContext, command: Sequence[str]) -> list[list[str]]:
    head = launch.nodes[0]
    shared = ["--nnodes", str(len(launch.nodes)), "--master-addr", head.address]
    shared += ["--master-port", str(launch.master_port)] if launch.master_port else []
    if lookup(profile.args, BACKEND) is None:
        shared += [f"--{BACKEND}", NATIVE]
    headless = _without_server(command)
    return [
        [*command, *shared, "--node-rank", "0"],
        *([*headless, *shared, "--node-rank", str(rank), "--headless"] for rank in range(1, len(launch.nodes))),
    ]


def _without_server(command: Sequence[str]) -> list[str]:
    words, index = list[str](), 0
    while index < len(command):
        if command[index].replace("_", "-") in _OF_SERVER:
            index += 2
        else:
            words.append(command[index])
            index += 1
    return words
