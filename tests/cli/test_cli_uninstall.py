"""`sparkdash uninstall`: everything that sparkdash left is named, and what is its own is removed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
BACKUP = "settings.json.before-sparkdash-20260101-000000"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    for name in ("CONFIG", "RUNTIME"):
        folder = tmp_path / name.lower() / "sparkdash"
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
        monkeypatch.setenv(f"SPARKDASH_{name}_DIR", str(folder))
    cache = tmp_path / ".cache/sparkdash"
    cache.mkdir(parents=True)
    (cache / "file").write_text("x")
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("SPARKDASH_STATE_DIR", str(shared))
    monkeypatch.setenv("SPARKDASH_URL", "http://127.0.0.1:9")
    script, zed = tmp_path / ".bash_completions/sparkdash.sh", tmp_path / ".config/zed"
    for folder in (script.parent, zed):
        folder.mkdir(parents=True)
    script.write_text("complete")
    (tmp_path / ".bashrc").write_text(f"alias ll=ls\nsource '{script}'\n")
    for file in ("settings.json", BACKUP):
        (zed / file).write_text("{}")
    return tmp_path


def left(home: Path) -> set[str]:
    return {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


def test_a_dry_run_names_everything_and_removes_nothing(sparkdash: Run, home: Path) -> None:
    before = left(home)
    done = sparkdash("uninstall", "--dry-run")
    assert done.code == 0
    for name in ("~/config/sparkdash", "~/.cache/sparkdash", "~/runtime/sparkdash", "~/.bash_completions/sparkdash.sh"):
        assert f"{name}\n" in done.out
    assert "~/shared\n" in done.out
    assert f"mv {home}/.config/zed/{BACKUP} {home}/.config/zed/settings.json" in done.out
    assert left(home) == before


def test_what_is_sparkdashs_own_is_removed_and_the_owners_files_stay(sparkdash: Run, home: Path) -> None:
    assert sparkdash("uninstall").code != 0, "nobody can be asked"
    assert (home / "config/sparkdash/file").exists()
    assert sparkdash("uninstall", "--yes").code == 0
    assert left(home) == {".bashrc", ".config/zed/settings.json", f".config/zed/{BACKUP}"}
    assert (home / "shared").is_dir()
    assert (home / ".bashrc").read_text() == "alias ll=ls\n"


def test_nothing_is_removed_beside_a_daemon(sparkdash: Run, home: Path, daemon: Any) -> None:
    refused = sparkdash("uninstall", "--yes")
    assert refused.code != 0
    assert "sparkdash stop --daemon --all" in refused.err
    assert (home / "config/sparkdash/file").exists()
    assert daemon
