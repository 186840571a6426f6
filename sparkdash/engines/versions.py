"""Version numbers of engines.

Pure.
"""

from __future__ import annotations

import re


def version_of(text: str | None) -> tuple[int, ...] | None:
    """Parse the leading numbers of a version; None when it does not begin with two ("b6123", a commit)."""
    found = re.match(r"v?(\d+(?:\.\d+)+)", text or "")
    return tuple(map(int, found[1].split("."))) if found else None
