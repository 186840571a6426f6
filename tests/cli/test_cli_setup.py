"""`sparkdash setup` beside a running daemon."""

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


def test_a_model_that_no_profile_is_called_is_refused_with_the_nearest(
    nobody: None, sparkdash: Callable[..., Any], own_folders: Path
) -> None:
    done = sparkdash("setup", "--yes", "--model", "gpt-oss-20", "--only", "model")
    assert done.code == 3
    assert "No profile or alias is called 'gpt-oss-20'" in done.err
    assert "gpt-oss-20b" in done.err


def test_a_model_is_found_by_its_name_in_capitals(
    nobody: None, sparkdash: Callable[..., Any], own_folders: Path
) -> None:
    done = sparkdash("setup", "--dry-run", "--model", "GPT-OSS-20B", "--only", "model")
    assert "gpt-oss-20b: you named it" in done.out


def test_steps_that_exclude_each_other_are_refused(sparkdash: Callable[..., Any], own_folders: Path) -> None:
    done = sparkdash("setup", "--only", "model", "--skip", "model")
    assert done.code == 2
    assert "leave no step" in done.err


def test_a_model_that_could_not_be_fetched_is_not_started(
    nobody: None, sparkdash: Callable[..., Any], own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon would only say once more that its files are not here, and park it."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    (own_folders / "config").mkdir(exist_ok=True)
    (own_folders / "config/config.toml").write_text("reserve_gib = 0\n")
    steps = ("--only", "model", "--only", "first-token")
    done = sparkdash("setup", "--yes", "--model", "gpt-oss-20b", *steps)
    assert "The hub cannot be reached" in done.err
    assert "first-token: not asked for, as gpt-oss-20b was not fetched." in done.err
    assert "Not done: model." in done.err
