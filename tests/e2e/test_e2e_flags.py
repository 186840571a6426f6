"""llama-servers that know one flag or the other: each starts by its own, and is asked for its flags once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkdash.catalog import yaml12

pytestmark = pytest.mark.full

HERE = Path(__file__).parent


def program(folder: Path, flag: str) -> Path:
    """An executable `llama-server` of that build, which writes each of its command lines down."""
    folder.mkdir()
    made = folder / "llama-server"
    told = f'#!/bin/sh\necho "$*" >> {folder}/calls\n'
    made.write_text(f'{told}exec {sys.executable} {HERE}/llama_server.py {flag} "$@"\n')
    made.chmod(0o755)
    return made


def profile(name: str, server: Path, **args: Any) -> str:
    return yaml12.dump(
        {
            "profile": name,
            "engine": "llamacpp",
            "command": [str(server)],
            "models": {"target": {"path": str(HERE)}},
            "args": {"ctx-size": 512, **args},
        }
    )


def chat(spark: Any, model: str) -> tuple[int, Any]:
    body = {"model": model, "messages": [{"role": "user", "content": "go"}], "max_tokens": 2}
    return spark.call("POST", "/v1/chat/completions", body)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def builds(new_daemon: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("builds")
    daemon = new_daemon(runtime="process", stop_grace_s=3, reserve_gib=0.1)
    for name, flag in (("old", "--no-mmap"), ("new", "--load-mode"), ("silent", "none")):
        daemon.write(name, profile(name, program(folder / name, flag)))
    daemon.write("wrong", profile("wrong", folder / "new/llama-server", **{"no-slots": True}))
    return daemon.start(), folder


@pytest.mark.parametrize(("name", "said"), [("old", "--no-mmap"), ("new", "--load-mode none"), ("silent", "")])
def test_each_build_starts_by_the_flag_that_it_knows(builds: tuple[Any, Path], name: str, said: str) -> None:
    spark, folder = builds
    for _ in range(2):
        status, body = chat(spark, name)
        assert (status, body.get("error")) == (200, None)
        spark.post("/api/stop", {"profile": name})
    asked, *started = (folder / name / "calls").read_text().splitlines()
    assert asked == "--help"
    assert len(started) == 2
    assert {line.partition(" --metrics")[2] for line in started} == {f" {said} --ctx-size 512".replace("  ", " ")}


def test_a_flag_that_a_build_does_not_list_is_named(builds: tuple[Any, Path]) -> None:
    spark, _ = builds
    status, body = chat(spark, "wrong")
    assert status >= 400
    assert "invalid argument: --no-slots" in body["error"]["message"]
    assert body["error"]["hint"] == "Its `--help` does not list --no-slots. Write `slots` instead, or remove it."
    (notice,) = [one for one in spark.state()["notices"] if one["code"] == "flag_not_listed"]
    assert "does not list --no-slots. Write `slots` instead, or remove it." in notice["text"]
    checked = json.loads(spark.sparkdash("profiles", "check", "--json").stdout)
    (finding,) = [one for one in checked["findings"] if one["code"] == "flag-not-listed"]
    assert (finding["key"], finding["profiles"], finding["level"]) == ("args.no-slots", ["wrong"], "warning")
    planned = json.loads(spark.sparkdash("use", "new", "--dry-run", "--json").stdout)
    assert planned["argv"][-4:] == ["--load-mode", "none", "--ctx-size", "512"]
