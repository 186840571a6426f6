"""Repro folder (launch_server.sh and similar scripts) as one family.

launch_server.sh is the base, the others are its variants. Must not know the disk: callers pass the files' texts by
name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparkdash.catalog.importers import podman_line
from sparkdash.catalog.importers.report import Imported, ImportNotes, import_refused
from sparkdash.catalog.importers.shell_commands import parse_commands
from sparkdash.catalog.importers.values import profile_name

BASE = "launch_server.sh"
_VARIANT = re.compile(r"launch_server[_-](.+)\.sh")
_BY_KEY = ("args", "env", "models")


def import_repro_folder(files: Mapping[str, str], name: str) -> Imported:
    """Import the family.

    Raises:
        ProfileError: launch_server.sh is missing, or a script starts no engine or more than one.
    """
    if BASE not in files:
        raise import_refused(
            f"The folder has no {BASE}.", "Give one script, or a folder with launch_server.sh in it or in scripts/."
        )
    notes = ImportNotes()
    base = _only(files, BASE, notes, profile_name(name) or "imported")
    _local_image(base, files, notes)
    variants = {}
    for file in sorted(files):
        if hit := _VARIANT.fullmatch(file):
            one = _only(files, file, notes, base["profile"])
            one.setdefault("image", base.get("image"))
            variants[profile_name(hit[1]) or "variant"] = difference(base, one)
    _others(files, notes)
    return notes.imported("repro folder", base | ({"variants": variants} if variants else {}))


def difference(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that turn `base` into `other`: changed keys, and null for keys to remove."""
    made: dict[str, Any] = {}
    for key in dict.fromkeys((*base, *other)):
        old, new = base.get(key), other.get(key)
        if key not in ("profile", "serves") and old != new:
            made[key] = _merged_difference(old or {}, new or {}) if key in _BY_KEY else new
    return made


def _merged_difference(base: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same for a mapping that variants merge key by key."""
    changed = {key: value for key, value in other.items() if key not in base or base[key] != value}
    return changed | dict.fromkeys(key for key in base if key not in other)


def _only(files: Mapping[str, str], file: str, notes: ImportNotes, name: str) -> dict[str, Any]:
    found = podman_line.import_commands(parse_commands(files[file], notes), notes, name)
    if len(found) != 1:
        raise import_refused(f"{file} starts {len(found) or 'no'} known engine(s), and one is expected.")
    return found[0]


def _local_image(base: dict[str, Any], files: Mapping[str, str], notes: ImportNotes) -> None:
    if "image" not in base and "Dockerfile" in files:
        base["image"] = f"localhost/{base['profile'].lower()}"
        notes.note("Dockerfile", f"the image must be built first: podman build -t {base['image']} .")


def _others(files: Mapping[str, str], notes: ImportNotes) -> None:
    for words, _ in parse_commands(files.get("download_models.sh", ""), ImportNotes()):
        if words[0] in ("hf", "huggingface-cli") and words[1:2] == ["download"] and len(words) > 2:
            notes.note("download_models.sh", f"fetches {words[2]} from the hub; nothing was fetched")
    if "wait_for_server.sh" in files:
        notes.note("wait_for_server.sh", "sparkdash waits by itself, until a first token comes")
    for file in sorted(files):
        if file.startswith("bench"):
            notes.note(file, "was read by nobody: measure with your own client")
