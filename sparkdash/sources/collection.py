"""Collection of recipes and profiles inside a repository: which files count, their names, facts and search.

Owns: the layout of public collections (`.sparkrun/registry.yaml`, `recipes/`), and the short names. Must not know git,
or how a recipe becomes a profile.
Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from sparkdash.catalog.importers.values import parse_bounded_yaml
from sparkdash.errors import ProfileError
from sparkdash.units import natural

MANIFEST = ".sparkrun/registry.yaml"
"""File in which a collection for sparkrun names its folders of recipes."""
SUFFIXES = (".yaml", ".yml")
_OWN = re.compile(r"^profile\s*:", re.MULTILINE)
_RECIPE = re.compile(r"^(?:sparkrun_version|recipe_version|runtime|container|defaults)\s*:", re.MULTILINE)
_RUNS = re.compile(r"^(?:command|model)\s*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Entry:
    """Recipe or profile of a source."""

    source: str
    name: str
    """Short name, unique in its source: `sparkdash profiles add SOURCE/NAME`."""
    path: str
    model: str | None = None
    about: str | None = None
    nodes: int | None = None
    """Boxes that it needs, if it says so."""
    own: bool = False
    """Whether it is a profile of sparkdash, which needs no conversion."""

    @property
    def address(self) -> str:
        return f"{self.source}/{self.name}"


def recipe_folders(manifest: str | None) -> tuple[str, ...]:
    """Return the folders that a collection's manifest names; () where it names none."""
    if manifest is None:
        return ()
    try:
        listed = parse_bounded_yaml(manifest).get("registries")
    except ProfileError:
        return ()
    folders = [one.get("recipes") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return tuple(folder.strip("/") + "/" for folder in folders if isinstance(folder, str) and folder.strip("/"))


def candidate_paths(paths: Iterable[str], folders: Sequence[str]) -> list[str]:
    """Return the YAML files that may be recipes: those in `folders`, or without folders all that are not hidden.

    A path with a line's end or another control character is left out: no command line could name it.
    """
    return [
        path
        for path in paths
        if PurePosixPath(path).suffix in SUFFIXES
        and path.isprintable()
        and not any(part.startswith(".") for part in PurePosixPath(path).parts)
        and (not folders or path.startswith(tuple(folders)))
    ]


def read_entries(source: str, texts: Mapping[str, str]) -> list[Entry]:
    found = {path: text for path, text in texts.items() if _OWN.search(text) or _is_recipe(text)}
    names = short_names(found)
    entries = [_entry(source, names[path], path, text) for path, text in found.items()]
    return sorted(entries, key=lambda entry: natural(entry.name))


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Return a name for each path: its stem, with as many folders before it as make it unique."""
    parts = {path: PurePosixPath(path).with_suffix("").parts for path in paths}
    ends = Counter(each[-count:] for each in parts.values() for count in range(1, len(each) + 1))
    return {path: "/".join(_unique_end(each, ends)) for path, each in parts.items()}


def _unique_end(parts: tuple[str, ...], ends: Mapping[tuple[str, ...], int]) -> tuple[str, ...]:
    return next((parts[-count:] for count in range(1, len(parts) + 1) if ends[parts[-count:]] == 1), parts)


def matching(entries: Iterable[Entry], words: Sequence[str]) -> list[Entry]:
    """Return the entries whose name, model, path or description holds every word, whatever its case."""
    wanted = [word.casefold() for word in words]
    return [
        entry
        for entry in entries
        if all(word in f"{entry.address} {entry.path} {entry.model} {entry.about}".casefold() for word in wanted)
    ]


def _is_recipe(text: str) -> bool:
    return bool(_RECIPE.search(text) and _RUNS.search(text))


def _entry(source: str, name: str, path: str, text: str) -> Entry:
    try:
        found = parse_bounded_yaml(text)
    except ProfileError:
        return Entry(source, name, path)
    if "profile" in found:
        return Entry(
            source, name, path, _own_model(found), _words(found.get("about")), _nodes(found.get("nodes")), True
        )
    metadata = found.get("metadata")
    about = found.get("description") or (metadata.get("description") if isinstance(metadata, dict) else None)
    nodes = _nodes(found.get("min_nodes"))
    if nodes is None:
        nodes = 1 if found.get("solo_only") is True else 2 if found.get("cluster_only") is True else None
    return Entry(source, name, path, _words(found.get("model")), _words(about), nodes)


def _own_model(profile: Mapping[str, Any]) -> str | None:
    models = profile.get("models")
    target = models.get("target") if isinstance(models, dict) else None
    return _words(target.get("hf")) if isinstance(target, dict) else None


def _words(value: object) -> str | None:
    return " ".join(value.split()) or None if isinstance(value, str) else None


def _nodes(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
