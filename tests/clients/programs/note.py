"""The one tool of the programs here: it reads a file. With the arguments that they are called with: ACT BASE MODEL ASK."""

import json
import os
import sys
from pathlib import Path
from typing import Any

PATH = {"path": {"type": "string"}}
SCHEMA = {"type": "object", "properties": PATH, "required": ["path"], "additionalProperties": False}
FUNCTION: Any = {"name": "read_note", "description": "Reads a note.", "parameters": SCHEMA}
"""The tool, in OpenAI's words."""
KEY = os.environ["SPARKDASH_KEY"]
ACT, BASE, MODEL, ASK = sys.argv[1:]
"""ACT: stream, whole or tools; BASE: with /v1; ASK: the prompt."""


def read(arguments: str) -> str:
    """Read the note that a call's arguments (JSON) name."""
    return Path(json.loads(arguments)["path"]).read_text()
