"""Models that the box of this file has complete, printed as a JSON list of booleans. It is piped to `python3 -` there.

It imports nothing of sparkdash. A model is complete by the rules of `host.hub.local_weights`.

Arguments: the Hugging Face folder, which may begin with `~`; a JSON list of models, each with `hf` and `revision` or
with `path`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".onnx", ".h5", ".msgpack")
INDEX = "model.safetensors.index.json"
PART = ".sparkdash-part"
"""Folder beside a file that is being copied, in which an interrupted copy keeps it."""
UNFINISHED = re.compile(r"(?:.*/)?\.[^/]+\.\w{6}")
"""Name under which rsync writes a file."""
SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})(\.\w+)")


def files_of(folder: Path) -> list[str]:
    """Return the files below a folder, without broken links."""
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def indexed(index: Path) -> set[str]:
    """Return the files that an index lists; none without a readable one."""
    try:
        return set(json.loads(index.read_bytes())["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()


def sisters(names: Iterable[str]) -> set[str]:
    """Return all shards of the sets that these files belong to."""
    found = filter(None, map(SHARD.fullmatch, names))
    return {f"{m[1]}-{number:05d}-of-{m[2]}{m[3]}" for m in found for number in range(1, int(m[2]) + 1)}


def is_complete(folder: Path, quant: str | None = None) -> bool:
    """Whether a folder has weights, and each file that its index and their names tell of."""
    names = {name for name in files_of(folder) if PART not in Path(name).parts}
    weights = {name for name in names if name.lower().endswith(WEIGHTS)}
    if quant:
        weights = {name for name in weights if name.lower().endswith(".gguf") and quant.lower() in name.lower()}
    return bool(weights) and not (indexed(folder / INDEX) | sisters(weights)) - names


def snapshot_of(repository: Path, revision: str) -> Path | None:
    """Return the folder of a revision in the cache; None without one."""
    try:
        commit = (repository / "refs" / revision).read_text().strip()
    except (OSError, ValueError):
        commit = revision
    folder = repository / "snapshots" / commit
    return folder if commit and ".." not in commit and folder.is_dir() else None


def is_here(model: Any, hf_home: Path) -> bool:
    """Whether a model is complete on this box."""
    if not model.get("hf"):
        return is_at(Path(model["path"]))
    name, _, quant = model["hf"].partition(":")
    repository = hf_home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = snapshot_of(repository, model.get("revision") or "main")
    return snapshot is not None and is_complete(snapshot, quant or None)


def is_at(path: Path) -> bool:
    """Whether a folder or file of a model is complete."""
    if not path.is_dir():
        return path.is_file() and all(path.with_name(name).is_file() for name in sisters([path.name]))
    names = files_of(path)
    if any(PART in Path(name).parts or UNFINISHED.fullmatch(name) for name in names):
        return False
    is_known = any(name.lower().endswith(WEIGHTS) for name in names)
    return is_complete(path) if is_known else bool(names)


def look(models: list[Any], hf_home: str) -> list[bool]:
    """Return for each model whether it is complete on this box; one that cannot be read is not."""
    found = []
    for model in models:
        try:
            found.append(is_here(model, Path(hf_home).expanduser()))
        except OSError:
            found.append(False)
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look(json.loads(sys.argv[2]), sys.argv[1])) + "\n")
