"""Ownership of engines: one daemon to a state folder, and what others started is left alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("same", ["state", "runtime"])
def test_two_daemons_refuse_each_other(new_daemon: Callable[..., Any], tmp_path: Path, same: str) -> None:
    first = new_daemon(runtime="process").start()
    shared = f"SPARKDASH_{same.upper()}_DIR"
    env = {**first.env, "SPARKDASH_STATE_DIR": str(tmp_path), "SPARKDASH_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "sparkdash", "serve", "--port", "0"],
        env={**env, shared: first.env[shared]}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 7
    said = " ".join(done.stderr.split())
    assert f"pid {first.process.pid}, {first.url}" in said
    assert first.get("/health") == {"status": "ok"}
