"""The fake daemon, where the command line finds it."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main
from fake_daemon import FakeDaemon


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    """A fake daemon where the command line looks for one."""
    made = FakeDaemon()
    thread = made.start()
    monkeypatch.setenv("SPARKDASH_URL", made.url)
    yield made
    made.end(thread)


command = cache(typer.main.get_command)
"""Typer puts all commands together whenever one is called: 40 ms."""


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def sparkdash(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Runs `sparkdash ARGV` through its real entry, in this process and off a terminal, 80 columns wide."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*argv: str) -> Done:
        from sparkdash.cli.main import main

        monkeypatch.setattr(sys, "argv", ["sparkdash", *argv])
        monkeypatch.setattr("typer.main.get_command", command)
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        assert "\x1b" not in out + err
        return Done(code, out, err)

    return run


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a shell script first on PATH, under the name of a program."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    def put(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return put


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
    monkeypatch.setenv("SPARKDASH_PORT", str(unused_tcp_port))
