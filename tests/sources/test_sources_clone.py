"""Bare clones: what their git leaves behind."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from sparkdash.sources import Clone


def test_a_fetch_that_is_given_up_ends_git_and_its_helpers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\ncase $* in *fetch*) sleep 4322 & echo 'Receiving objects:  12%' >&2; wait;; esac\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("sparkdash.paths.sources_dir", lambda: tmp_path)
    (tmp_path / "mine.git").mkdir()
    (tmp_path / "mine.git/HEAD").touch()

    def give_up(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Clone("mine").fetch("https://example.org/recipes", None, give_up)
    left = [each for each in psutil.process_iter(["cmdline"]) if "4322" in (each.info["cmdline"] or ())]
    assert psutil.wait_procs(left, timeout=5)[1] == []
