"""Profile as a sparkrun recipe, version 2."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from sparkdash.catalog.quadlet_unit import lost_comments
from sparkdash.catalog.yaml import yaml_writer
from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.profile import AUTO, EngineKind, Profile
from sparkdash.domain.server import ServerKind
from sparkdash.errors import ProfileError

_RUNTIMES = {EngineKind.LLAMACPP: "llama-cpp"}
_ATLAS = {"max-seq-len": "max_model_len", "max-prefill-tokens": "max_num_batched_tokens", "tp-size": "tensor_parallel"}
"""Flags of Atlas that have another name in a recipe (sparkrun 0.2.40, runtimes/atlas.py)."""
_HOST = "0.0.0.0"  # noqa: S104 - sparkrun's own default; its containers are reached from other boxes
_PORT = 8000


def sparkrun_recipe(profile: Profile, spec: ContainerSpec) -> str:
    """Render the recipe; its command is the profile's, with {model}, {host} and {port} left to sparkrun.

    Raises:
        ProfileError: the profile's server is none that sparkrun starts.
    """
    if profile.server is not None and profile.server.kind is ServerKind.ATLAS and not profile.command:
        return _written(profile, _heads(profile, spec, "atlas") | {"defaults": _atlas_defaults(profile)})
    if profile.engine is EngineKind.GENERIC:
        raise ProfileError(
            f"sparkrun has no runtime for the server of {profile.name}.",
            code="export_refused",
            hint="Export it with `--as podman`, `--as quadlet` or `--as llama-swap`.",
        )
    heads = _heads(profile, spec, _RUNTIMES.get(profile.engine, profile.engine.value))
    return _written(profile, heads | {"command": _command(profile, spec)})


def _heads(profile: Profile, spec: ContainerSpec, runtime: str) -> dict[str, Any]:
    """Return all keys but the command."""
    return {
        "recipe_version": "2",
        "name": profile.name,
        "description": profile.about,
        "model": profile.models["target"].ref,
        "runtime": runtime,
        "container": spec.image,
        "min_nodes": profile.nodes if profile.nodes > 1 else None,
        "defaults": {"host": _HOST, "port": _PORT},
        "env": _engine_environment(spec) | {name: f"${name}" for name in spec.env_from},
    }


def _atlas_defaults(profile: Profile) -> dict[str, Any]:
    """Return the flags of Atlas under sparkrun's names; its recipes have no command."""
    flags = {_ATLAS.get(name, name.replace("-", "_")): value for name, value in profile.args.items()}
    return {"host": _HOST, "port": _PORT, "served_model_name": profile.name} | flags


def _written(profile: Profile, given: dict[str, Any]) -> str:
    text = yaml_writer.dump({key: value for key, value in given.items() if value})
    unsaid = lost_comments(profile, "mounts", "tmpfs", "shm_size", "gpu", "request", "memory")
    return "\n".join([*unsaid, text]).rstrip()


def _command(profile: Profile, spec: ContainerSpec) -> str:
    """Render the command, one flag with its values per line; words of a template stay unquoted."""
    words = _command_words(spec, {"--host": "{host}", "--port": "{port}"})
    model = profile.models["target"].ref
    lines: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            lines.append([])
        template = word in ("{host}", "{port}") or (word == model and len(lines) <= 2)
        lines[-1].append("{model}" if word == model and template else word if template else shlex.quote(word))
    return " \\\n  ".join(" ".join(line) for line in lines) + "\n"


PLACE = "/sparkdash/"
"""Prefix of sparkdash's caches in a container; variables that point there are left out with them."""

ADDRESS = ("--host", "--port")
NAMES = "--served-model-name"


def _engine_environment(spec: ContainerSpec) -> dict[str, str]:
    """Return the variables that the engine itself gets."""
    return {name: text for name, text in spec.env.items() if not text.startswith(PLACE)}


def _command_words(spec: ContainerSpec, address: dict[str, str]) -> Iterator[str]:
    """Yield the command's words with `address` for --host and --port, without sparkdash's own alias."""
    before = flag = ""
    for word in spec.argv:
        flag = word if word.startswith("--") else flag
        if not (flag == NAMES and word == AUTO):
            yield address.get(before, word) if before in ADDRESS else word
        before = word
