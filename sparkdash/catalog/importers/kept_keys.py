"""Keys of a profile that podman's formats cannot carry, as comments of an export that an import reads back. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sparkdash.catalog.importers.values import is_shallow, json_or_none
from sparkdash.domain.profile import Profile

KEPT = frozenset(
    {
        "about", "engine_version", "context", "memory", "request", "request_set", "request_strip", "modes", "mends_off",
        "mirror_reasoning", "first_byte_s", "between_bytes_s", "on_stuck", "protocols", "published", "silence",
        "fork_flags", "can", "keep_entrypoint", "keep_kv",
    }
)  # fmt: skip
"""Keys that mean the same on another box; those that name other profiles or files are left out."""
_LINE = re.compile(r"^# sparkdash (\w+): (.+)$", re.MULTILINE)


_OF_ADAPTERS = ("lora", "lora-init-without-apply", "enable-lora", "lora-modules")
"""Flags by which engines get the adapters of `serves`."""


def comment_lines(profile: Profile) -> Iterator[str]:
    """Yield one comment line for each kept key of the profile, its value as JSON."""
    given = profile.model_dump(mode="json", include=set(KEPT), exclude_defaults=True)
    if profile.adapters:  # as plain aliases they would be answered without their weights
        places = {name: profile.models[name].model_dump(exclude_none=True) for name in profile.adapters}
        given["serves"] = [{name: places[name]} if name in places else name for name in profile.serves]
    if given:
        yield "# What a container cannot carry; `sparkdash profiles import` reads it back:"
    for key, value in sorted(given.items()):
        yield f"# sparkdash {key}: {json.dumps(value, ensure_ascii=True)}"


def read_comments(text: str) -> dict[str, Any]:
    """Return the kept keys that an export wrote into the text; a line that was damaged counts as a comment."""
    found = {key: json_or_none(value) for key, value in _LINE.findall(text) if key in KEPT | {"serves"}}
    return {key: value for key, value in found.items() if value is not None and is_shallow(value)}


def put_back(profile: dict[str, Any], kept: dict[str, Any]) -> dict[str, Any]:
    """Add the kept keys to an imported profile; flags and mounts of its adapters go, as sparkdash makes them."""
    if not isinstance(kept.get("serves"), list):
        return profile | {key: value for key, value in kept.items() if key != "serves"}
    args = {key: value for key, value in profile.get("args", {}).items() if key not in _OF_ADAPTERS}
    mounts = [mount for mount in profile.get("mounts", []) if mount not in _adapter_mounts(kept["serves"])]
    return {key: value for key, value in (profile | kept | {"args": args, "mounts": mounts}).items() if value != []}


def _adapter_mounts(serves: list[Any]) -> list[dict[str, str]]:
    named = [place for item in serves if isinstance(item, dict) for place in item.values()]
    paths = [str(place.get("path")) for place in named if isinstance(place, dict)]
    return [{"source": one, "target": one} for path in paths for one in (path, path.rpartition("/")[0])]
