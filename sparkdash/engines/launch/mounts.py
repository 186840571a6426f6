"""Mounts and cache variables of an engine's container.

Owns: the read-only mounts of local models, the Hugging Face cache, the compile caches, and the variables that point at
them. Must not know: engines' flags, the runtime's syntax, the disk.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from sparkdash.domain.profile import Mount, Profile
from sparkdash.engines.adapter import LaunchContext

HF_TARGET = "/sparkdash/huggingface"
CACHE_TARGET = "/sparkdash/cache"
"""Fixed path, because an image's user and home folder are unknown."""

_CACHE_ENV = {
    "XDG_CACHE_HOME": CACHE_TARGET,  # vLLM's compile cache, FlashInfer's autotune results
    "FLASHINFER_WORKSPACE_BASE": CACHE_TARGET,
    "TRITON_CACHE_DIR": f"{CACHE_TARGET}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE_TARGET}/inductor",
    "CUDA_CACHE_PATH": f"{CACHE_TARGET}/cuda",
}


def from_hub(profile: Profile) -> bool:
    """Whether any model comes from the Hugging Face hub."""
    return any(ref.hf for ref in profile.used_models)


def container_mounts(profile: Profile, launch: LaunchContext, files: Iterable[str] = ()) -> tuple[Mount, ...]:
    """List the profile's own mounts, then model paths and `files` not yet covered, then the caches."""
    wanted = sorted({_folder(ref.path) for ref in profile.used_models if ref.path} | set(files))
    result = list(profile.mounts)
    for path in wanted:
        if not any(_covers(mount.target, path) for mount in result):
            result.append(Mount(source=path, target=path))
    if from_hub(profile):
        result.append(Mount(source=launch.hf_home, target=HF_TARGET, read_only=False))
    result.append(Mount(source=launch.cache_dir, target=CACHE_TARGET, read_only=False))
    return tuple(result)


def cache_environment(profile: Profile, launch: LaunchContext) -> dict[str, str]:
    """Return the variables that point engines at the mounted caches; with a process runtime only the hub cache."""
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


def _covers(folder: str, path: str) -> bool:
    return PurePosixPath(path).is_relative_to(PurePosixPath(folder))
