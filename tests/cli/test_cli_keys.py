"""`sparkdash keys`: made, shown once, listed, revoked; and a daemon that knows them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import programs
import pytest

from sparkdash.keyring import digest

Run = Callable[..., Any]


def test_a_key_is_printed_once(sparkdash: Run, own_folders: Path) -> None:
    made = sparkdash("keys", "add", "laptop", "--models", "a", "--models", "b*", "--tokens-per-day", "1000")
    secret = made.out.strip()
    assert "only this once" in made.err
    file = (own_folders / "config" / "keys.json").read_text()
    assert secret not in file
    assert digest(secret) in file
    listed = sparkdash("keys", "list")
    assert listed.out.splitlines()[1].split() == ["laptop", "inference", "a,", "b*", "-", "1000", "-", "-"]
    assert max(map(len, listed.out.splitlines())) <= 80
    assert "Left out to fit 80 columns: prompt, completion" in listed.err
    as_json = sparkdash("keys", "list", "--json")
    assert as_json.json()["keys"][0]["models"] == ["a", "b*"]
    assert digest(secret) not in as_json.out
    audit = (own_folders / "state" / "audit.jsonl").read_text()
    assert json.loads(audit)["said"] == {"name": "laptop"}
    assert secret not in audit


def test_as_json_and_wrong_words(sparkdash: Run) -> None:
    made = sparkdash("keys", "add", "c", "--scope", "control", "--scope", "inference", "--batch", "--json").json()
    assert (made["name"], made["scopes"]) == ("c", ["control", "inference"])
    assert "control, inference, batch" in sparkdash("keys", "list").out
    assert made["key"].startswith("sk-sparkdash-")
    assert sparkdash("keys", "add", "d", "--scope", "all").code == 2
    assert sparkdash("keys", "add", "a b").code == 2
    assert sparkdash("keys", "add", "c").code == 3
    assert sparkdash("keys", "revoke", "d").code == 3
    gone = sparkdash("keys", "revoke", "c")
    assert gone.code == 0
    assert "everybody on this box" in gone.err


def test_a_key_may_expire(sparkdash: Run) -> None:
    made = sparkdash("keys", "add", "guest", "--expires", "7d")
    assert "until 20" in made.err
    assert "until 20" in sparkdash("keys", "list").out
    assert sparkdash("keys", "list", "--json").json()["keys"][0]["expires_at"] > 1.7e9
    wrong = sparkdash("keys", "add", "late", "--expires", "2020-01-01")
    assert wrong.code == 2
    assert "--expires" in wrong.err
    assert len(sparkdash("keys", "list", "--json").json()["keys"]) == 1


def test_no_keys(sparkdash: Run) -> None:
    assert "nobody else" in sparkdash("keys", "list").out
    assert sparkdash("keys", "list", "--json").json() == {"keys": []}


def test_a_port_for_others_needs_a_key(own_folders: Path) -> None:
    serve = ["-m", "sparkdash", "serve", "--host", "0.0.0.0", "--port", "0", "--runtime", "process"]
    done = programs.run(serve, text=True)
    assert done.returncode == 2
    assert "sparkdash keys add" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("keys",), ("memory",), ("profiles",), ("bench", "suites")])
def test_a_table_in_a_pipe_has_all_of_its_columns_and_words(
    sparkdash: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], unused_tcp_port: int
) -> None:
    """There is no terminal whose width it could exceed; a program reads it, or a person in a pager."""
    monkeypatch.setenv("SPARKDASH_PORT", str(unused_tcp_port))
    sparkdash("keys", "add", "laptop", "--tokens-per-day", "1000")
    narrow = sparkdash(*words)
    monkeypatch.delenv("COLUMNS")
    whole = sparkdash(*words)
    assert "Left out" not in whole.err
    assert max(map(len, whole.out.splitlines())) > 80 >= max(map(len, narrow.out.splitlines()[:1]))
