"""Containers of an all-reduce, out of a profile, and the answers in their log.

Owns: which parts of the profile's launch a rank needs. Must not know how containers are run.
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.node import NodeLaunch
from sparkdash.domain.profile import Profile
from sparkdash.engines.adapter import LaunchContext
from sparkdash.engines.launch.nodes import build_containers
from sparkdash.nodes.all_reduce.bus_bandwidth import all_reduce_bus_gbit_s
from sparkdash.nodes.link.record import LinkMeasurement
from sparkdash.units import GIB, KIB, MIB

SIZES = (16 * KIB, MIB, 16 * MIB, 256 * MIB)
"""Bytes: a token's activations at batch 1 and 64, a prefill's, and one that only the link's rate limits."""
CPU_SIZES = (16 * KIB, MIB, 16 * MIB)
NEED = 4 * GIB
"""Memory of one rank: CUDA's context, torch, NCCL's buffers, and the largest tensor."""
LIMIT_S = 240.0
"""Seconds after which a rank ends itself; importing torch from a cold disk takes a minute."""
LABEL_MEASURE = "sparkdash.measure"
"""Label of the containers; its value is the profile's name. They have no label of an engine."""
MARK = "sparkdash-all-reduce "
"""Begin of each line of a log that is an answer."""


def rank_containers(
    profile: Profile, nodes: Sequence[NodeLaunch], script: str, *, containerised: bool, port: int, tag: str
) -> tuple[ContainerSpec, ...]:
    """Build one container for each node: image, variables and devices as for the engine, its weights left out.

    `port`: free port on the first node's link; `tag`: makes the names unique.

    Raises:
        ProfileError: the profile has no image.
    """
    launch = LaunchContext(
        port=port, containerised=containerised, hf_home="/", cache_dir="/", nodes=tuple(nodes), master_port=port
    )
    request = {
        "ranks": len(nodes),
        "address": nodes[0].address,
        "port": port,
        "sizes": SIZES if profile.gpu else CPU_SIZES,
        "mark": MARK,
        "limit_s": LIMIT_S,
    }
    commands = [
        (interpreter(profile), "-c", script, json.dumps({**request, "rank": rank})) for rank in range(len(nodes))
    ]
    head = build_containers(profile, launch, commands)
    return tuple(
        spec.replace(
            name=f"sparkdash-all-reduce-{tag}-{rank}",
            labels={LABEL_MEASURE: profile.name},
            mounts=profile.mounts,
            node=node.name,
            workers=(),
        )
        for rank, (spec, node) in enumerate(zip((head, *head.workers), nodes, strict=True))
    )


def interpreter(profile: Profile) -> str:
    """Python of the image: beside the profile's own program where that has a path, else python3."""
    program = profile.command[0] if profile.command else ""
    return str(PurePosixPath(program).with_name("python3")) if "/" in program else "python3"


def parse_answer(line: str) -> dict[str, Any] | None:
    """Parse one line of rank 0's log; None for a line that is no answer."""
    _, mark, text = line.partition(MARK)
    try:
        found = json.loads(text) if mark else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def measurements(answers: Iterable[dict[str, Any]], nodes: Sequence[str], backend: str) -> tuple[LinkMeasurement, ...]:
    """Bus bandwidth of each size, from the answers of rank 0."""
    return tuple(
        LinkMeasurement(
            what=f"all-reduce ({backend})",
            source=nodes[0],
            target=nodes[-1],
            size=int(each["size"]),
            gbit_s=all_reduce_bus_gbit_s(int(each["size"]), float(each["seconds"]), len(nodes)),
            time_us=float(each["seconds"]) * 1e6,
        )
        for each in answers
        if "size" in each
    )
