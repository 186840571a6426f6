"""Choices kept from one start of the dashboard to the next: the theme, and the arrangement of its first page.

Owns: the file. Rule: a file that cannot be read or written costs the choice, never the dashboard.
"""

from __future__ import annotations

import json
from pathlib import Path

from sparkdash import paths
from sparkdash.locked_file import replace_file
from sparkdash.tui.layout import Arrangement


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
        return self._read().get("theme")

    @property
    def arrangement(self) -> Arrangement:
        """The kept arrangement; all panels without one."""
        kept = self._read().get("arrangement")
        return Arrangement(kept) if kept in list(Arrangement) else Arrangement.ALL

    def keep_theme(self, name: str) -> bool:
        """Keep the theme; return whether it could be written."""
        return self._keep("theme", name)

    def keep_arrangement(self, shown: Arrangement) -> bool:
        """Keep the arrangement; return whether it could be written."""
        return self._keep("arrangement", shown.value)

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(self._path.read_text()) if self._path else {}
        except (OSError, ValueError):
            return {}
        return {key: one for key, one in found.items() if isinstance(one, str)} if isinstance(found, dict) else {}

    def _keep(self, name: str, value: str) -> bool:
        if self._path is None:
            return False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self._path, json.dumps(self._read() | {name: value}).encode())
        except OSError:
            return False
        return True
