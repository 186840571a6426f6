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


def comment_lines(profile: Profile) -> Iterator[str]:
    """Yield one comment line for each kept key of the profile, its value as JSON."""
    given = profile.model_dump(mode="json", include=set(KEPT), exclude_defaults=True)
    if given:
        yield "# What a container cannot carry; `sparkdash profiles import` reads it back:"
    for key, value in sorted(given.items()):
        yield f"# sparkdash {key}: {json.dumps(value, ensure_ascii=True)}"


def read_comments(text: str) -> dict[str, Any]:
    """Return the kept keys that an export wrote into the text; a line that was damaged counts as a comment."""
    found = {key: json_or_none(value) for key, value in _LINE.findall(text) if key in KEPT}
    return {key: value for key, value in found.items() if value is not None and is_shallow(value)}
