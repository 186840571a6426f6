"""ContainerSpec as every started engine fills it in: name, image, mounts, caches, variables, devices, labels. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Literal

from sparkdash.domain import container
from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.node import LOCAL, NodeLaunch
from sparkdash.domain.profile import Mount, Profile
from sparkdash.engines.argv import container_name, fill_placeholders, fill_words
from sparkdash.errors import ProfileError

HF_TARGET = "/sparkdash/huggingface"
CACHE_TARGET = "/sparkdash/cache"
"""Fixed path, because an image's user and home folder are unknown."""
KV_TARGET = "/sparkdash/kv"
CACHES = "engines"
"""Folder of compile caches, below the folder of all caches."""
KEPT_KV = "kv"
"""Folder of conversations that are kept, with a folder for each daemon's owner label and each profile below."""

_UNSAFE, _LONGEST = re.compile(r"[^\w.-]+"), 100
_ID = 12
"""Digits of an image's id and of a revision in a folder's name."""
_CACHE_ENV = {
    "XDG_CACHE_HOME": CACHE_TARGET,
    "FLASHINFER_WORKSPACE_BASE": CACHE_TARGET,
    "VLLM_CACHE_ROOT": f"{CACHE_TARGET}/vllm",  # also FlashInfer's autotune results
    "TRITON_CACHE_DIR": f"{CACHE_TARGET}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE_TARGET}/inductor",
    "TORCH_EXTENSIONS_DIR": f"{CACHE_TARGET}/torch_extensions",
    "CUDA_CACHE_PATH": f"{CACHE_TARGET}/cuda",
    "DG_JIT_CACHE_DIR": f"{CACHE_TARGET}/deep_gemm",
    "SGLANG_DG_CACHE_DIR": f"{CACHE_TARGET}/deep_gemm",  # SGLang sets DG_JIT_CACHE_DIR to this
    "TRTLLM_DG_CACHE_DIR": f"{CACHE_TARGET}/trtllm_deep_gemm",
    "TILELANG_CACHE_DIR": f"{CACHE_TARGET}/tilelang",
    "CUTE_DSL_CACHE_DIR": f"{CACHE_TARGET}/cute",
    "TVM_FFI_CACHE_DIR": f"{CACHE_TARGET}/tvm-ffi",
    "B12X_COMPILE_CACHE_DIR": f"{CACHE_TARGET}/b12x",
}


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """Supervisor's decisions about one launch, which an adapter needs beside the profile."""

    port: int
    containerised: bool
    """Whether it runs in a container; the process runtime has no image or mounts, and host paths as they are."""
    hf_home: str
    """Owner's Hugging Face cache on the host, mounted when a model comes from the hub."""
    cache_dir: str
    """Host folder of sparkdash's caches; engines' compile caches are below it, so that the second start is fast."""
    image_id: str | None = None
    """Id of the profile's image on the launch's nodes; None while not known there."""
    labels: dict[str, str] = field(default_factory=dict)
    nodes: tuple[NodeLaunch, ...] = ()
    """Nodes of the launch, the one that serves first; empty: the daemon's own box alone."""
    master_port: int = 0
    """Free port on the serving node's link by which the ranks of several nodes find each other."""


def from_hub(profile: Profile) -> bool:
    return any(ref.hf for ref in profile.used_models)


def container_mounts(profile: Profile, launch: LaunchContext, files: Iterable[str] = ()) -> tuple[Mount, ...]:
    """List the profile's own mounts, then model paths and `files` not yet covered, then the caches."""
    wanted = sorted({_folder(ref.path) for ref in profile.used_models if ref.path} | set(files))
    result = list(profile.mounts)
    for path in wanted:
        if not any(PurePosixPath(path).is_relative_to(mount.target) for mount in result):
            result.append(Mount(source=path, target=path))
    if from_hub(profile):
        result.append(Mount(source=launch.hf_home, target=HF_TARGET, read_only=False))
    result.append(Mount(source=compile_cache(profile, launch), target=CACHE_TARGET, read_only=False))
    return tuple(result)


def compile_cache(profile: Profile, launch: LaunchContext) -> str:
    """Return the host folder of what this very image compiles for these weights: IMAGE@ID@WEIGHTS."""
    image_id = (launch.image_id or "tag").removeprefix("sha256:")[:_ID]
    ref = profile.models.get("target")
    weights = f"{ref.ref}-{ref.revision[:_ID]}" if ref and ref.revision else ref.ref if ref else "any"
    return f"{launch.cache_dir}/{CACHES}/{_plain(profile.image or '')}@{image_id}@{_plain(weights.strip('/'))}"


def kept_kv(profile: Profile, launch: LaunchContext) -> str:
    """Return the host folder of the profile's conversations; empty for a launch that keeps none."""
    if profile.keep_kv is None or launch.nodes:
        return ""
    return kept_kv_folder(profile.name, launch.cache_dir, launch.labels.get(container.LABEL_OWNER, ""))


def kept_kv_folder(name: str, cache_dir: str, owner: str) -> str:
    return f"{cache_dir}/{KEPT_KV}/{owner}/{name.replace('/', '@')}"


def _plain(name: str) -> str:
    return _UNSAFE.sub("-", name)[-_LONGEST:]


def _cache_environment(profile: Profile, launch: LaunchContext) -> dict[str, str]:
    hub = {"HF_HOME": HF_TARGET if launch.containerised else launch.hf_home} if from_hub(profile) else {}
    return hub | (_CACHE_ENV if launch.containerised else {})


def _folder(path: str) -> str:
    """Return the folder to mount for `path`: a hub snapshot links into its repository, a GGUF has sibling files."""
    pure = PurePosixPath(path)
    parts = pure.parts
    for index, part in enumerate(parts[:-1]):
        if part.startswith("models--") and parts[index + 1] == "snapshots":
            return str(PurePosixPath(*parts[: index + 1]))
    return str(pure.parent if pure.suffix == ".gguf" else pure)


ALL_GPUS = "nvidia.com/gpu=all"
"""CDI name of every GPU; a Spark has one."""

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})

SHM_SIZE = "8g"
"""Shared memory of a container. Engines that pass tensors between processes die of podman's 64 MB;
over 10 GB count against the memory."""


def build_container(
    profile: Profile,
    launch: LaunchContext,
    argv: Sequence[str],
    *,
    shm_size: str | None = None,
    files: Iterable[str] = (),
    env: Mapping[str, str] = NO_VARIABLES,
    kept: str = "",
    rank: int | None = None,
) -> ContainerSpec:
    """Build the container that runs `argv`, on the launch's node, or of several nodes on that of `rank`.

    `files` are further host paths to mount, `kept` the folder of its conversations. `env`: variables of the dialect;
    the profile's own override them.
    Raises ProfileError: no image for a runtime that needs one; several nodes for an engine that takes no rank.
    """
    if profile.nodes > 1 and rank is None:
        raise ProfileError(
            f"Profile {profile.name} wants {profile.nodes} nodes, and sparkdash starts {profile.engine} on one.",
            code="nodes_unsupported",
            hint="Set `nodes: 1`, or use vLLM, SGLang or TensorFold.",
        )
    node, launch = _placed(launch, rank or 0)
    own = fill_placeholders({**profile.env, **profile.env_by_node.get(node, {})}, profile.models)
    variables = _cache_environment(profile, launch) | dict(env) | own
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
        mounts=(
            *container_mounts(profile, launch, files),
            *((Mount(source=kept, target=KV_TARGET, read_only=False),) if kept else ()),
        ),
        tmpfs=profile.tmpfs,
        devices=(ALL_GPUS,) if profile.gpu else (),
        shm_size=profile.shm_size or shm_size,
        seccomp=f"{launch.cache_dir}/seccomp-{profile.security}.json" if profile.security else None,
        keeps_entrypoint=profile.keep_entrypoint,
    )


def started_elsewhere(profile: Profile, launch: LaunchContext) -> ContainerSpec:
    """Build what the profile's starter runs on this box: a process, also beside a runtime of containers."""
    values = {"port": str(launch.port), "name": profile.name} | {name: ref.ref for name, ref in profile.models.items()}

    def filled(command: Literal["prepare", "start"]) -> tuple[str, ...]:
        return tuple(fill_words(word, values) for word in profile.starter.get(command, ()))

    spec = build_container(profile, replace(launch, containerised=False), filled("start"))
    return spec.replace(
        prepare=filled("prepare"),
        env={key: fill_words(value, values) for key, value in spec.env.items()},
        stop_signal=profile.server.stop_signal if profile.server else None,
    )


def program(profile: Profile, default: tuple[str, ...]) -> list[str]:
    return [str(fill_placeholders(word, profile.models)) for word in profile.command] or list(default)


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
        container.LABEL_PROFILE: profile.name,
        container.LABEL_FINGERPRINT: profile.fingerprint,
        container.LABEL_PORT: str(launch.port),
        **({} if names == (LOCAL,) else {container.LABEL_NODES: ",".join(names)}),
        **launch.labels,
    }
