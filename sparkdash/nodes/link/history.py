"""Measured links in the state folder, one file per run; anyone may delete them.

Owns: the files. Must not know how anything is measured.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from sparkdash import paths
from sparkdash.nodes.link.record import LinkRun


def link_runs_dir() -> Path:
    """Folder of the measured links."""
    return paths.state_dir() / "links"


def keep_run(run: LinkRun, folder: Path | None = None) -> Path:
    """Write a run into a file of its own; return its path. Raises OSError."""
    place = folder or link_runs_dir()
    place.mkdir(parents=True, exist_ok=True)
    stamp = datetime.fromtimestamp(run.at, UTC).strftime("%Y%m%d-%H%M%S")
    path = place / f"{stamp}-{run.node}-{run.tool}.json"
    path.write_text(run.model_dump_json(indent=2) + "\n", "utf-8")
    return path


def kept_runs(node: str | None = None, folder: Path | None = None) -> tuple[LinkRun, ...]:
    """Kept runs, the oldest first, of all nodes or of one. Files that are no runs are left out."""
    found = []
    for path in sorted((folder or link_runs_dir()).glob("*.json")):
        try:
            run = LinkRun.model_validate_json(path.read_text("utf-8"))
        except (OSError, ValidationError, UnicodeDecodeError):
            continue
        if node in (None, run.node):
            found.append(run)
    return tuple(found)
