"""WeightFacts of a folder, a file, or a model in the Hugging Face cache, by config.json and the headers alone.

Blocks on files: call it in a thread where an event loop runs.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from sparkdash.catalog.checkpoint import gguf, model, safetensors
from sparkdash.catalog.checkpoint.model import quantization
from sparkdash.catalog.checkpoint.on_disk import repository_folder, shard_names, snapshot_folder
from sparkdash.catalog.checkpoint.safetensors import Tensor, unreadable_weights
from sparkdash.domain.profile import ModelRef, Mount, Profile
from sparkdash.domain.weights import Unread, WeightFacts
from sparkdash.errors import ProfileError

CONFIG = "config.json"
SIDECAR = "hf_quant_config.json"

_SHARD = re.compile(r"-\d{5}-of-\d{5}$")

Stamp = tuple[tuple[str, int, int], ...]


def read_profile_weights(profile: Profile, hf_home: Path) -> dict[str, WeightFacts | Unread]:
    """Read the facts of a profile's models by role, through its mounts; Unread with the reason where that fails."""
    found: dict[str, WeightFacts | Unread] = {}
    for role, ref in profile.models.items():
        try:
            found[role] = read_weight_facts(locate_checkpoint(ref, hf_home, profile.mounts))
        except ProfileError as error:
            found[role] = Unread(reason=error.text())
    return found


def locate_checkpoint(ref: ModelRef, hf_home: Path, mounts: Iterable[Mount] = ()) -> Path:
    """Locate the folder or file of a model on this box. Raises ProfileError: `weights_missing`."""
    if ref.path is not None:
        for place in (ref.path, *_outside(ref.path, mounts)):
            if Path(place).expanduser().exists():
                return Path(place).expanduser()
        raise _missing(f"{ref.path} is not on this box")
    repository = ref.hf or ""
    found = snapshot_folder(repository_folder(hf_home, repository), ref.revision)
    if found is None:
        at = f" at {ref.revision}" if ref.revision else ""
        raise _missing(f"{repository}{at} is not in the cache at {hf_home}", "`sparkdash pull` fetches it.")
    return found


def cached_repositories(hf_home: Path) -> list[str]:
    """List the models in the Hugging Face cache, complete or not, as owner/name."""
    found = sorted((hf_home / "hub").glob("models--*/snapshots"))
    return [folder.parent.name.removeprefix("models--").replace("--", "/", 1) for folder in found]


def read_weight_facts(place: Path) -> WeightFacts:
    """Read the facts of a folder or GGUF file; cached while its files stay the same. Raises ProfileError."""
    files = gguf_files(place)
    if not files and not place.is_dir():
        raise unreadable_weights(f"{place} is neither a model's folder nor a GGUF file")
    return _read(place, tuple(files), _stamp(files or sorted(place.iterdir())))


def gguf_files(place: Path) -> list[Path]:
    """List the GGUF files of one model in order; empty beside safetensors. Raises ProfileError."""
    if place.is_file():
        return _parts(place) if place.suffix == ".gguf" else []
    if next(place.glob("*.safetensors"), None):
        return []
    found = sorted(file for file in place.glob("*.gguf") if not file.name.startswith("mmproj"))
    models = {_SHARD.sub("", file.stem): file for file in reversed(found)}
    if len(models) > 1:
        raise unreadable_weights(
            f"{place} holds {len(models)} GGUF models: {', '.join(sorted(models))}", "Give one as path."
        )
    return _parts(found[0]) if found else []


def assemble_weight_facts(
    origin: str, config: Mapping[str, Any], sidecar: Mapping[str, Any], found: Sequence[Tensor]
) -> WeightFacts:
    """Combine config.json, ModelOpt's sidecar (empty without one) and tensors into facts."""
    text = model.text_config(config)
    layers, packed = model.layers(text), quantization(config, sidecar)
    return WeightFacts(
        origin=origin,
        format="safetensors",
        architecture=_word(config, "model_type"),
        bytes=model.bytes_by_purpose(found, layers),
        parameters=model.count_parameters(found, packed.bits),
        layers=layers,
        hidden=model.integer(text, "hidden_size", "n_embd"),
        kv=model.kv_layers(text),
        experts=model.experts(text),
        active_experts=model.active_experts(text),
        tied_head=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings"))),
        context=model.integer(text, "max_position_embeddings", "n_positions", "max_sequence_length"),
        dtype=_word(text, "dtype", "torch_dtype") or _word(config, "dtype", "torch_dtype"),
        quantization=packed.name,
        kv_dtype=packed.kv_dtype,
        sees=model.has_vision_tower(found),
    )


@lru_cache(maxsize=64)
def _read(place: Path, files: tuple[Path, ...], stamp: Stamp) -> WeightFacts:  # noqa: ARG001 - cache key
    if files:
        headers = [gguf.read_gguf_header(file) for file in files]
        found = [tensor for _, tensors in headers for tensor in tensors]
        return gguf.gguf_weight_facts(headers[0][0], found, str(place))
    sidecar = place / SIDECAR
    return assemble_weight_facts(
        str(place),
        safetensors.read_json_object(place / CONFIG),
        safetensors.read_json_object(sidecar) if sidecar.exists() else {},
        [one for file in safetensors.checkpoint_files(place) for one in safetensors.read_safetensors_header(file)],
    )


def _stamp(files: Iterable[Path]) -> Stamp:
    """Return name, size and time of each file, links followed; a dangling link counts as empty."""
    stats = ((file.name, file.stat() if file.exists() else None) for file in files)
    return tuple((name, stat.st_size, stat.st_mtime_ns) if stat else (name, 0, 0) for name, stat in stats)


def _parts(first: Path) -> list[Path]:
    """List all files of a split model, given any of them."""
    wanted = [first.with_name(name) for name in shard_names(first.name)] or [first]
    if missing := [file.name for file in wanted if not file.exists()]:
        raise unreadable_weights(
            f"{first.parent} is incomplete: {missing[0]} is not there", "Download the model again."
        )
    return wanted


def _outside(path: str, mounts: Iterable[Mount]) -> Iterable[str]:
    """Translate a path of the container to paths on the host."""
    for mount in mounts:
        inner = PurePosixPath(path)
        if inner.is_relative_to(mount.target):
            yield str(PurePosixPath(mount.source) / inner.relative_to(mount.target))


def _missing(message: str, hint: str | None = None) -> ProfileError:
    return ProfileError(f"{message}.", code="weights_missing", hint=hint)


def _word(config: Mapping[str, Any], *keys: str) -> str | None:
    return next((found for key in keys if (found := model.word(config.get(key)))), None)
