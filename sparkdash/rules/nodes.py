"""Rules about profiles for several nodes: what differs from box to box, and what makes two boxes hang or slow.

Owns: variables that one value cannot serve on all boxes, and settings that failed on two. Must not know how
a link is found.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sparkdash.catalog.document import KeyPath
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.argv import lookup
from sparkdash.rules.rule import Hit, Rule, Severity, flag_path

LINK_VARIABLES = (
    "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include", "TP_SOCKET_IFNAME",
    "UCX_NET_DEVICES",
)  # fmt: skip
"""Variables that name an interface or an RDMA device."""
GID_INDEX = "NCCL_IB_GID_INDEX"
ADDRESSES = ("VLLM_HOST_IP", "HOST_IP", "MASTER_ADDR", "RAY_ADDRESS")
"""Variables with an address, which sparkdash sets for each node at a start."""
SOCKETS = {"NCCL_IB_DISABLE": "1", "NCCL_NET": "socket"}
"""Values, in small letters, by which NCCL leaves RDMA unused."""
MONITOR = "RAY_memory_monitor_refresh_ms"
STEP_LIMIT = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
LEAST_STEP_S = 40
"""Shortest limit of a step that a healthy pair kept to; its first request takes the longest."""
STREAMER, STREAMER_LIMIT = "runai_streamer", "RUNAI_STREAMER_MEMORY_LIMIT"

_VLLM = (EngineKind.VLLM,)


def _of_several(find: Callable[[Profile], Iterator[Hit]]) -> Callable[[Profile], Iterator[Hit]]:
    def only(profile: Profile) -> Iterator[Hit]:
        if profile.nodes > 1:
            yield from find(profile)

    return only


def _variables(profile: Profile) -> Iterator[tuple[KeyPath, str, str]]:
    """Path, name and value of each variable, also of those for one node."""
    yield from ((("env", name), name, value) for name, value in profile.env.items())
    by_node: Mapping[str, Mapping[str, str]] = profile.env_by_node
    for node, given in by_node.items():
        yield from ((("env_by_node", node, name), name, value) for name, value in given.items())


def _link(profile: Profile) -> Iterator[Hit]:
    for name in LINK_VARIABLES:
        if name in profile.env:
            text = "is one name for all boxes, and names of interfaces differ from box to box"
            yield Hit(("env", name), text, _found_at_start(name))


def _gid(profile: Profile) -> Iterator[Hit]:
    if GID_INDEX in profile.env:
        text = "is one index for all boxes; it is 3 on most and 5 on some"
        yield Hit(("env", GID_INDEX), text, _found_at_start(GID_INDEX))


def _found_at_start(name: str) -> str:
    return f"Remove it: sparkdash finds it on each box. To set it on one, write `env_by_node: {{NODE: {{{name}: …}}}}`."


def _address(profile: Profile) -> Iterator[Hit]:
    for name in ADDRESSES:
        if name in profile.env:
            yield Hit(
                ("env", name), "gives all boxes one address", "Remove it: sparkdash sets each box's own at a start."
            )


def _sockets(profile: Profile) -> Iterator[Hit]:
    for path, name, value in _variables(profile):
        if SOCKETS.get(name) == value.strip().lower():
            text = "keeps NCCL off RDMA, and each step waits longer for the link"
            yield Hit(path, text, "Remove it: sparkdash turns RDMA on where both boxes have it.")


def _monitor(profile: Profile) -> Iterator[Hit]:
    if lookup(profile.args, "distributed-executor-backend") != "ray":
        return
    for path, name, value in _variables(profile):
        if name == MONITOR and value.strip() != "0":
            text = "lets Ray kill at 95 % of a memory that the engine fills on purpose"
            yield Hit(path, text, "Remove it: sparkdash sets 0, and its own guard watches each box.")


def _step_limit(profile: Profile) -> Iterator[Hit]:
    for path, name, value in _variables(profile):
        if name == STEP_LIMIT and value.strip().isdecimal() and int(value) < LEAST_STEP_S:
            text = f"{value.strip()} s end the first request of a healthy pair"
            yield Hit(path, text, f"Write {LEAST_STEP_S} or more, or remove it (300).")


def _streamer(profile: Profile) -> Iterator[Hit]:
    path = flag_path(profile, "load-format")
    if path and lookup(profile.args, "load-format") == STREAMER and STREAMER_LIMIT not in profile.env:
        text = "reads ahead without a limit; one box ran out of memory at 18 % of the load"
        yield Hit(path, text, f'Add `env: {{{STREAMER_LIMIT}: "2147483648"}}`.')


RULES = (
    Rule(
        "pinned-link",
        Severity.WARNING,
        "one interface or RDMA device named for all boxes",
        "sparkrun@0041b8f finds them on each box, as names differ",
        _of_several(_link),
    ),
    Rule(
        "pinned-gid-index",
        Severity.WARNING,
        "one GID index for all boxes",
        "sparkrun@0041b8f reads it on each box; 5 instead of 3 in EXL3#47",
        _of_several(_gid),
    ),
    Rule(
        "pinned-address",
        Severity.ERROR,
        "one address for all boxes",
        "dgx-spark-playbooks@0db7c14, nvidia/vllm, sets VLLM_HOST_IP to each box's own",
        _of_several(_address),
    ),
    Rule(
        "nccl-without-rdma",
        Severity.WARNING,
        "NCCL kept off RDMA",
        "sparkrun@0041b8f sets NCCL_IB_DISABLE=0; sockets are a silent loss: vllm#42075",
        _of_several(_sockets),
    ),
    Rule(
        "ray-memory-monitor",
        Severity.WARNING,
        "Ray's memory monitor beside an engine that fills the memory",
        "RAY_memory_monitor_refresh_ms=0 in dgx-spark-playbooks@0db7c14, nvidia/vllm",
        _of_several(_monitor),
        _VLLM,
    ),
    Rule(
        "short-step-limit",
        Severity.WARNING,
        "a limit of a step that a healthy pair exceeds",
        "15 s ended a first request, 40 s none: vLLM 0.32.0 on two hosts, measured here",
        _of_several(_step_limit),
        _VLLM,
    ),
    Rule(
        "streamer-without-limit",
        Severity.WARNING,
        "runai_streamer without a memory limit on two boxes",
        "a rank killed at 18 % of a load of 178 GB: NVFP4-2x#9; the limit: vllm#53906",
        _of_several(_streamer),
        _VLLM,
    ),
)
