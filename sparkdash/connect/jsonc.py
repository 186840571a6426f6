"""JSON as editors keep it: with // and /* */ comments and trailing commas.

Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any

_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = r"//[^\n]*|/\*.*?\*/"
_TOKEN = re.compile(rf"({_STRING})|({_COMMENT})", re.DOTALL)
_TRAILING = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)


def parse_jsonc(text: str) -> Any:
    """Parse the text. Raises ValueError."""
    return json.loads(_TRAILING.sub(_string, _blank(text)))


def is_plain(text: str) -> bool:
    """Whether the text is plain JSON, so that rewriting it loses nothing."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def first_brace(text: str) -> int:
    """Return the position of the outer object's opening brace."""
    return _blank(text).index("{")


def _blank(text: str) -> str:
    """Blank comments with spaces, so that every other character keeps its position."""
    return _TOKEN.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[2]), text)


def _string(found: re.Match[str]) -> str:
    return found[1] or ""
