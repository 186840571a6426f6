"""`sparkdash setup` beside a running daemon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_a_running_daemon_reads_the_profiles_just_written(
    daemon: Any, sparkdash: Callable[..., Any], own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later step uses them at once; the daemon by itself finds changed files a moment later."""
    monkeypatch.setenv("HOME", str(own_folders))
    config = own_folders / ".config/llama-swap/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("models:\n  quick:\n    cmd: llama-server --port ${PORT} -m /models/q.gguf\n")
    done = sparkdash("setup", "--yes", "--only", "import")
    assert (own_folders / "config/profiles/quick.yaml").exists(), done.err
    assert daemon.reloads == 1
