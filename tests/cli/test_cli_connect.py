"""`sparkdash connect`: printed, written and proved, against a daemon that answers over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.connect.clients import RECIPES

Run = Callable[..., Any]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SPARKDASH_KEY", raising=False)
    return tmp_path / "home"


def test_the_list(sparkdash: Run) -> None:
    assert [line.split()[0] for line in sparkdash("connect", "--list").out.splitlines()[1:]] == list(RECIPES)
    assert [each["name"] for each in sparkdash("connect", "--list", "--json").json()] == list(RECIPES)
    assert sparkdash("connect").code == 2
    assert "opencode" in sparkdash("connect", "opncode").err


def test_without_a_daemon_its_settings_and_profiles_say(sparkdash: Run, nobody: None, home: Path) -> None:
    told = sparkdash("connect", "codex", "--model", "gpt-oss-120b", "--json")
    assert told.code == 0
    assert told.json()["model"] == "gpt-oss-120b"
    assert 'wire_api = "responses"' in told.json()["files"][0]["text"]
    assert "No daemon answers" in told.err
    assert not home.exists()
    unknown = sparkdash("connect", "codex", "--model", "gpt-oss-12b")
    assert unknown.code == 3
    assert "gpt-oss-120b" in unknown.err


def test_before_anything_runs_a_client_gets_the_model_that_a_setup_begins_with(
    sparkdash: Run, nobody: None, home: Path
) -> None:
    assert sparkdash("connect", "codex", "--json").json()["model"] == "gpt-oss-20b"


@pytest.mark.parametrize("how", [(), ("--test",)])
def test_a_password_in_its_address_goes_into_no_file(sparkdash: Run, nobody: None, how: tuple[str, ...]) -> None:
    done = sparkdash("connect", "zed", "--url", "http://me:hunter2@spark.lan:8484", *how)
    assert done.code == 7
    assert "http://***@spark.lan:8484 contains a password" in " ".join(done.err.split())
    assert "hunter2" not in done.out + done.err


def test_write_shows_keeps_and_asks(sparkdash: Run, nobody: None, home: Path) -> None:
    """Off a terminal nothing is written without --yes; a second time there is nothing to do."""
    place = home / ".config" / "opencode" / "opencode.json"
    place.parent.mkdir(parents=True)
    place.write_text('{"theme": "mine"}')
    argv = ("connect", "opencode", "--model", "gpt-oss-120b", "--write")
    asked = sparkdash(*argv)
    assert asked.code == 1
    assert "--yes" in asked.err
    assert '+  "model": "sparkdash/gpt-oss-120b"' in asked.err
    assert place.read_text() == '{"theme": "mine"}'
    done = sparkdash(*argv, "--yes")
    assert done.code == 0
    assert json.loads(place.read_text())["theme"] == "mine"
    (backup,) = place.parent.glob("*.before-sparkdash-*")
    assert backup.read_text() == '{"theme": "mine"}'
    assert "Nothing to write" in sparkdash(*argv).out


def test_a_key_is_written_and_never_shown(
    sparkdash: Run, nobody: None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKDASH_KEY", "sk-sparkdash-SECRET")
    done = sparkdash("connect", "claude-code", "--model", "gpt-oss-120b", "--write", "--yes")
    assert done.code == 0
    assert "SECRET" not in done.out + done.err
    assert "sk-sparkdash-SECRET" in (home / ".claude" / "sparkdash.json").read_text()


def test_what_others_cannot_write_is_said(sparkdash: Run, nobody: None, home: Path, tmp_path: Path) -> None:
    assert "prints what to enter" in sparkdash("connect", "cline", "--write").err
    assert "--file" in sparkdash("connect", "librechat", "--write").err
    file = tmp_path / "librechat.yaml"
    file.write_text("version: 1.2.1  # mine\n")
    assert sparkdash("connect", "librechat", "--write", "--yes", "--file", str(file)).code == 0
    assert file.read_text().startswith("version: 1.2.1  # mine\nendpoints:\n")
