"""A long script run from a copy of its checkout, so that an update of the checkout meanwhile changes nothing.

Owns: the copy, and the second start from it. The folders of engines (`.engine`) are links and are not copied.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = "SPARKDASH_TESTS_COPIED"
"""Variable that a start from the copy finds set."""


def run_from_copy(script: str) -> None:
    """Run `script` of this checkout again from a copy and exit with its status; return at once in the copy."""
    if os.environ.get(COPIED):
        return
    with tempfile.TemporaryDirectory(prefix="sparkdash-copy-", ignore_cleanup_errors=True) as name:
        copy = Path(name)
        for folder in ("sparkdash", "profiles", "tests"):
            left_out = shutil.ignore_patterns("__pycache__", "flag_tables", "browser")
            shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=left_out)
        shutil.copy(ROOT / "pyproject.toml", copy)
        again = copy / Path(script).resolve().relative_to(ROOT)
        env = {**os.environ, COPIED: str(ROOT), "PYTHONPATH": str(copy)}
        done = subprocess.run([sys.executable, str(again), *sys.argv[1:]], env=env, cwd=copy, check=False)
    raise SystemExit(done.returncode)
