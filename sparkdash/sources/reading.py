"""Contents of a source at its pinned commit: entries, one entry's text, and changes between two commits.

Owns: putting clone and collection together. Must not know the list of sources, or printing.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from sparkdash.errors import ProfileError
from sparkdash.sources import collection
from sparkdash.sources.clone import Clone, TreeFile, pinned_clone
from sparkdash.sources.collection import Entry
from sparkdash.sources.source import Source

MOST_FILES = 5000
"""Recipes that are read of one source."""


@dataclass(frozen=True, slots=True)
class Change:
    """Recipe that differs between two commits."""

    kind: str
    """added, removed or changed."""
    path: str
    diff: tuple[str, ...]
    """Lines of a unified diff; () unless changed."""


def entries(source: Source) -> list[Entry]:
    """Return the recipes and profiles of a source, in natural order. Raises HostError."""
    return collection.read_entries(source.name, _recipe_texts(pinned_clone(source), source.commit))


def entry_text(source: Source, name: str) -> tuple[Entry, str]:
    """Return an entry and its text.

    `name`: its short name, or its path in the repository.

    Raises:
        ProfileError: entry_unknown, with the nearest names.
        HostError: the clone cannot be read or fetched.
    """
    texts = _recipe_texts(pinned_clone(source), source.commit)
    known = collection.read_entries(source.name, texts)
    for entry in known:
        if name in (entry.name, entry.path):
            return entry, texts[entry.path]
    near = difflib.get_close_matches(name, [entry.name for entry in known], 3, 0.5)
    raise ProfileError(
        f"{source.name} has no recipe {name!r} at {source.short_commit}.",
        code="entry_unknown",
        hint=f"Nearest: {', '.join(near)}." if near else f"`sparkdash profiles search {source.name}` lists them.",
    )


def changes(clone: Clone, before: str, after: str) -> list[Change]:
    """Return the recipes that differ between two commits of a clone, by path. Raises HostError."""
    old, new = _recipe_texts(clone, before), _recipe_texts(clone, after)
    found = []
    for path in sorted({*old, *new}):
        if path not in old:
            found.append(Change("added", path, ()))
        elif path not in new:
            found.append(Change("removed", path, ()))
        elif old[path] != new[path]:
            found.append(Change("changed", path, tuple(diff_lines(old[path], new[path]))))
    return found


def diff_lines(before: str, after: str) -> Sequence[str]:
    """Return a unified diff without its two head lines."""
    return list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:]


def count_recipes(clone: Clone, commit: str) -> int:
    """Count the recipes and profiles at a commit. Raises HostError."""
    return len(collection.read_entries("", _recipe_texts(clone, commit)))


def _recipe_texts(clone: Clone, commit: str) -> dict[str, str]:
    """Return the texts of all files that may be recipes, by path."""
    files = {file.path: file for file in clone.files(commit)}
    manifest = _text(clone, files.get(collection.MANIFEST))
    paths = collection.candidate_paths(files, collection.recipe_folders(manifest))
    return {file.path: text for file, text in clone.texts([files[path] for path in paths[:MOST_FILES]])}


def _text(clone: Clone, file: TreeFile | None) -> str | None:
    return next((text for _, text in clone.texts([file])), None) if file else None
