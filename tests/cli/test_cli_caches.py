"""`sparkdash memory --caches`: the list, and what a removal takes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
DAY = 86400


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: Callable[[str, str], None]) -> Path:
    """Two caches, and a podman that lists one container, which has the older one mounted."""
    config = tmp_path / "config"
    config.mkdir(exist_ok=True)
    root = tmp_path / "cache" / "engines"
    (config / "config.toml").write_text(f'cache_dir = "{root.parent}"\n')
    monkeypatch.setenv("SPARKDASH_CONFIG_DIR", str(config))
    for days, name in ((2, "new@0123456789ab@m"), (40, "old@0123456789ab@m"), (90, "used@0123456789ab@m")):
        (root / name).mkdir(parents=True)
        (root / name / "kernel").write_bytes(b"k" * 4096)
        os.utime(root / name, (time.time() - days * DAY,) * 2)
    listed = (
        f'[{{"Id": "1", "State": {{"Status": "running"}}, "Mounts": [{{"Source": "{root}/used@0123456789ab@m"}}]}}]'
    )
    stand_in("podman", f"if [ $1 = ps ]; then echo 1; else echo '{listed}'; fi")
    return root


def test_the_list_says_what_is_used(sparkdash: Run) -> None:
    done = sparkdash("memory", "--caches")
    assert [line.split()[0] for line in done.out.splitlines()] == ["image", "new", "old", "used", "12"]
    assert [line.endswith("in use") for line in done.out.splitlines()] == [False, False, False, True, False]


def test_a_removal_takes_what_no_start_and_no_engine_uses(sparkdash: Run, folders: Path) -> None:
    told = sparkdash("memory", "--prune", "30d", "--dry-run", "--json").json()
    assert [(one["image"], one["old"], one["removed"]) for one in told] == [
        ("new", False, False), ("old", True, False), ("used", False, False),
    ]  # fmt: skip
    assert len(list(folders.iterdir())) == 3
    assert "Removed 4 KiB" in sparkdash("memory", "--prune", "30d").out
    assert sorted(each.name[:3] for each in folders.iterdir()) == ["new", "use"]
