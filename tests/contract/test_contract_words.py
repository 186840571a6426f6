"""Messages name what they are about."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import sparkdash

ROOMS = ("catalog", "daemon", "engines", "gateway", "host", "keyring", "rules", "supervisor", "telemetry", "upstream")
"""Rooms whose words reach clients and people who asked for one profile; usage texts of the command line do not."""
PLACEHOLDER = re.compile(r"`sparkdash [a-z]+ (?:PROFILE|NAME|MODEL)`")


def files_of(room: Path) -> list[Path]:
    """Modules of a folder, or the one module of that name."""
    return list(room.rglob("*.py")) or [room.with_suffix(".py")]


def test_no_hint_prints_a_placeholder_for_the_name_of_a_profile() -> None:
    """A command in a hint can be typed as it stands there."""
    found = [
        f"{file.name}:{node.lineno}: {node.value}"
        for room in ROOMS
        for file in files_of(Path(sparkdash.__file__).parent / room)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and PLACEHOLDER.search(node.value)
    ]
    assert found == []
