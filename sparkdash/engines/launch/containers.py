"""ContainerSpec as every managed dialect fills it in.

Owns: name, image, mounts, environment, devices, labels. Must not know the command line.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from types import MappingProxyType

from sparkdash.domain.container import LABEL_FINGERPRINT, LABEL_NODES, LABEL_PORT, LABEL_PROFILE, ContainerSpec
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import Profile
from sparkdash.engines.adapter import LaunchContext
from sparkdash.engines.launch.argv import container_name, fill_placeholders
from sparkdash.engines.launch.mounts import cache_environment, container_mounts
from sparkdash.errors import ProfileError

ALL_GPUS = "nvidia.com/gpu=all"
"""CDI name of every GPU; a Spark has one."""

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
_PYTHON = re.compile(r"python[\d.]*")

SHM_SIZE = "8g"
"""Shared memory of engines that pass tensors between processes. The runtime's default of 64 MB makes them die; more
than 10 GB counts against the unified memory.
"""


def build_container(
    profile: Profile,
    launch: LaunchContext,
    argv: Sequence[str],
    *,
    shm_size: str | None = None,
    files: Iterable[str] = (),
    env: Mapping[str, str] = NO_VARIABLES,
    rank: int | None = None,
) -> ContainerSpec:
    """Build the container that runs `argv`, on the launch's node, or of several nodes on the one with this rank.

    `files` are further host paths to mount. `env`: variables of the dialect; the profile's own override them.

    Raises:
        ProfileError: the runtime needs an image and the profile has none; the profile wants several nodes, and the
            dialect cannot start its engine on them.
    """
    if profile.nodes > 1 and rank is None:
        raise ProfileError(
            f"Profile {profile.name} wants {profile.nodes} nodes, and sparkdash starts {profile.engine} on one.",
            code="nodes_unsupported",
            hint="Set `nodes: 1`, or use vLLM or SGLang.",
        )
    node, launch = _placed(launch, rank or 0)
    own = fill_placeholders({**profile.env, **profile.env_by_node.get(node, {})}, profile.models)
    variables = cache_environment(profile, launch) | dict(env) | own
    common = ContainerSpec(
        name=container_name(profile.name),
        node=node,
        image=None,
        argv=tuple(argv),
        port=launch.port,
        env=variables,
        env_from=profile.env_from,
        labels=_labels(profile, launch),
    )
    if not launch.containerised:
        return common
    return common.replace(
        image=_image(profile),
        mounts=container_mounts(profile, launch, files),
        tmpfs=profile.tmpfs,
        devices=(ALL_GPUS,) if profile.gpu else (),
        shm_size=profile.shm_size or shm_size,
    )


def program(profile: Profile, default: tuple[str, ...]) -> list[str]:
    """Return the profile's own command, or the dialect's."""
    return [str(fill_placeholders(word, profile.models)) for word in profile.command] or list(default)


def is_own_program(words: Sequence[str], default: Sequence[str]) -> bool:
    """Whether `argv` runs the dialect's own program, at any path. A wrapper may ignore `--help`, and serve."""
    name = PurePosixPath(words[0]).name
    return ["python3" if _PYTHON.fullmatch(name) else name, *words[1:]] == list(default)


def help_container(profile: Profile, argv: Sequence[str], *, containerised: bool) -> ContainerSpec:
    """Build the container in which `argv` lists its flags: the profile's image, mounts and variables, without GPU,
    model and cache.
    """
    common = ContainerSpec(
        name=f"{container_name(profile.name)}-help",
        image=None,
        argv=tuple(argv),
        port=0,
        env=fill_placeholders(profile.env, profile.models),
        env_from=profile.env_from,
    )
    if not containerised:
        return common
    return common.replace(image=profile.image, mounts=profile.mounts, tmpfs=profile.tmpfs)


def _placed(launch: LaunchContext, rank: int) -> tuple[str, LaunchContext]:
    """Return the name of a node of the launch, and the launch with that node's paths."""
    if not launch.nodes:
        return LOCAL, launch
    node = launch.nodes[rank]
    return node.name, replace(launch, hf_home=node.hf_home, cache_dir=node.cache_dir)


def _image(profile: Profile) -> str:
    if profile.image is None:
        raise ProfileError(
            f"Profile {profile.name} has no image, and this runtime starts containers.",
            code="image_missing",
            hint="Add `image:` to it, or start the daemon with `--runtime process`.",
        )
    return profile.image


def _labels(profile: Profile, launch: LaunchContext) -> dict[str, str]:
    names = tuple(node.name for node in launch.nodes) or (LOCAL,)
    return {
        LABEL_PROFILE: profile.name,
        LABEL_FINGERPRINT: profile.fingerprint,
        LABEL_PORT: str(launch.port),
        **({} if names == (LOCAL,) else {LABEL_NODES: ",".join(names)}),
        **launch.labels,
    }
