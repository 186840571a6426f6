"""Imports agree with pyproject.toml: a library that only happens to be installed is none."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = {"pydantic-core": "pydantic"}
"""Distributions whose types are part of another one's interface, and come with it."""


def imported() -> dict[str, str]:
    """Top-level modules that are neither ours nor Python's, each with a file that imports it."""
    found = {}
    for path in (ROOT / "sparkdash").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            else:
                continue
            found.update({name.partition(".")[0]: str(path) for name in names})
    return {name: path for name, path in found.items() if name != "sparkdash" and name not in sys.stdlib_module_names}


def test_every_library_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {_normal(re.split(r"[^\w.-]", line)[0]) for line in project["dependencies"]}
    owners = packages_distributions()
    strays = {
        name: path
        for name, path in imported().items()
        if not declared & {PARTS.get(owner, owner) for owner in map(_normal, owners.get(name, [name]))}
    }
    assert strays == {}


def _normal(distribution: str) -> str:
    return distribution.lower().replace("_", "-")
