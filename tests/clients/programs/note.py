"""The one tool of the programs here: it reads a file. With the arguments that they are called with: ACT BASE MODEL ASK."""

from __future__ import annotations

import json
import sys
from pathlib import Path

NAME = "read_note"
SAYS = "Reads a note."
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
ACT, BASE, MODEL, ASK = sys.argv[1:]
"""ACT: stream, whole or tools; BASE: with /v1; ASK: the prompt."""


def read(arguments: str) -> str:
    """Read the note that a call's arguments (JSON) name."""
    return Path(json.loads(arguments)["path"]).read_text()
