"""What the dashboard keeps from one start to the next: the theme.

Owns: the file. Rule: a file that cannot be read or written costs the choice, never the dashboard.
"""

from __future__ import annotations

import json
from pathlib import Path

from sparkdash import paths
from sparkdash.locked_file import replace_file


class KeptChoices:
    """Choices in one small file of the state folder; without a path nothing is kept."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @classmethod
    def of_this_user(cls) -> KeptChoices:
        """Return the choices of this user, who may have several daemons."""
        return cls(paths.state_dir() / "dashboard.json")

    @property
    def theme(self) -> str | None:
        """Name of the kept theme; None without one."""
        try:
            found = json.loads(self._path.read_text()) if self._path else {}
        except (OSError, ValueError):
            return None
        name = found.get("theme") if isinstance(found, dict) else None
        return name if isinstance(name, str) else None

    def keep_theme(self, name: str) -> bool:
        """Keep the theme; return whether it could be written."""
        if self._path is None:
            return False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps({"theme": name}).encode())
        except OSError:
            return False
        return True
