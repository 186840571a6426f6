"""`sparkdash service install --helper`: shown first, written below a folder of the test's own."""

from __future__ import annotations

import getpass
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.host.memory import helper as texts

Run = Callable[..., Any]

UNIT, RULE = texts.UNIT.lstrip("/"), texts.RULE.lstrip("/")


def user_who_is_not_root() -> pwd.struct_passwd:
    """Any other user of this box."""
    return next(one for one in pwd.getpwall() if one.pw_uid)


def test_it_is_installed_as_shown_and_removed_without_a_trace(sparkdash: Run, tmp_path: Path) -> None:
    """What is written is what was shown; sudo reads its rules only from files that nobody may write."""
    user = user_who_is_not_root()
    shown = sparkdash("service", "install", "--helper", "--user", user.pw_name, "--dry-run")
    assert shown.code == 0
    assert f"{user.pw_name} ALL=(root) NOPASSWD: /usr/bin/systemctl start sparkdash-memory.service\n" in shown.out
    done = sparkdash("service", "install", "--helper", "--user", user.pw_name, "--root", str(tmp_path), "--yes")
    assert done.code == 0, done.err
    assert done.out == shown.out
    unit, rule = tmp_path / UNIT, tmp_path / RULE
    assert unit.read_text() in done.out
    assert rule.read_text() in done.out
    assert stat.S_IMODE(unit.stat().st_mode) == 0o644
    assert stat.S_IMODE(rule.stat().st_mode) == 0o440
    assert sparkdash("service", "install", "--helper", "--root", str(tmp_path), "-y").code == 0  # ours is written anew
    gone = sparkdash("service", "uninstall", "--helper", "--root", str(tmp_path))
    assert gone.code == 0
    assert "Removed /etc/sudoers.d/sparkdash-memory" in gone.err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert "not installed" in sparkdash("service", "uninstall", "--helper", "--root", str(tmp_path)).err


def test_nothing_is_written_before_somebody_agreed(sparkdash: Run, tmp_path: Path) -> None:
    root = tmp_path / "root"
    done = sparkdash("service", "install", "--helper", "--root", str(root))
    assert done.code == 5
    assert "--yes" in done.err
    assert not root.exists()


def test_without_root_the_command_is_shown(sparkdash: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = sparkdash("service", "install", "--helper")
    assert done.code == 5
    assert texts.TEXT in done.out
    assert f"-B -m sparkdash service install --helper --user {getpass.getuser()}" in done.err
    assert "sudo" in done.err
    done = sparkdash("service", "uninstall", "--helper")
    assert done.code == 5
    assert "service uninstall --helper" in done.err


def test_files_of_somebody_else_stay(sparkdash: Run, tmp_path: Path) -> None:
    rule = tmp_path / RULE
    rule.parent.mkdir(parents=True)
    rule.write_text("ann ALL=(ALL) ALL\n")
    where = ("--helper", "--root", str(tmp_path))
    user = user_who_is_not_root().pw_name
    for command in (("install", *where, "--user", user, "--yes"), ("uninstall", *where)):
        done = sparkdash("service", *command)
        assert done.code == 5
        assert "was not written by sparkdash" in done.err
    assert rule.read_text() == "ann ALL=(ALL) ALL\n"
    assert not (tmp_path / UNIT).exists()
    assert sparkdash("service", "uninstall", *where, "--force").code == 0
    assert not rule.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [(("install", "--helper", "--port", "9000"), "--port does not go with --helper"),
     (("install", "--yes"), "--yes needs --helper"), (("uninstall", "--root", "/x"), "--root needs --helper"),
     (("install", "--helper", "--user", "nobody-of-this-name"), "user nobody-of-this-name does not exist")],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(sparkdash: Run, words: tuple[str, ...], said: str) -> None:
    done = sparkdash("service", *words)
    assert done.code == 5
    assert said in done.err


def test_a_rule_that_sudo_cannot_read_is_never_put_in_place(
    sparkdash: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "visudo").write_text("#!/bin/sh\necho 'syntax error' >&2\nexit 1\n")
    (folder / "visudo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    root = tmp_path / "root"
    user = user_who_is_not_root().pw_name
    done = sparkdash("service", "install", "--helper", "--user", user, "--root", str(root), "--yes")
    assert done.code == 5
    assert "visudo refuses the rule: syntax error" in done.err
    assert [path for path in root.rglob("*") if path.is_file()] == []
