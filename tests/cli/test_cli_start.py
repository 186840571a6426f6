"""The console script: its first words come before all else, and the dashboard comes without the command line."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from sparkdash import demo as demo_program
from sparkdash.cli import OPENING, dashboard, main, running_daemon, start
from sparkdash.cli import main as command_line
from sparkdash.cli import serve as demo_command
from sparkdash.cli.dashboard import exit_codes
from sparkdash.errors import DaemonError
from sparkdash.tui import app


def run_on_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str, term: str = "xterm"
) -> list[tuple[str, str]]:
    """Run the script; returns what it ran, with what it had said before."""
    found: list[tuple[str, str]] = []
    monkeypatch.setenv("TERM", term)
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(command_line, "main", lambda: found.append(("commands", capsys.readouterr().err)))
    monkeypatch.setattr(dashboard, "open_dashboard", lambda: found.append(("dashboard", capsys.readouterr().err)))
    monkeypatch.setattr(sys, "argv", ["sparkdash", *words])
    start.main()
    return found


def test_the_dashboard_says_that_it_opens_and_loads_no_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_on_terminal(monkeypatch, capsys) == [("dashboard", f"{OPENING}\r")]


def test_a_terminal_that_cannot_be_drawn_on_gets_the_status_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_on_terminal(monkeypatch, capsys, term="dumb") == [("commands", "")]
    asked: list[str] = []
    monkeypatch.setattr("sparkdash.cli.status.status", lambda: asked.append("status"))
    main.home()
    assert asked == ["status"]


def test_a_command_says_nothing_before_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_on_terminal(monkeypatch, capsys, "status") == [("commands", "")]


def test_a_shell_that_asks_for_completions_gets_no_dashboard(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_SPARKDASH_COMPLETE", "source_bash")
    assert run_on_terminal(monkeypatch, capsys) == [("commands", "")]


def test_a_failure_exits_with_its_own_code_and_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left, exit_codes():
        raise DaemonError("Nothing answers.", code="no_daemon", hint="Start it.")
    told = capsys.readouterr().err
    assert left.value.code == DaemonError("", code="no_daemon").exit_code
    assert "Nothing answers." in told
    assert "Start it." in told


def test_the_first_words_are_erased_before_the_dashboard_takes_the_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(app.asyncio, "run", lambda live: live.close())
    app.run_dashboard()
    assert capsys.readouterr().err == "\x1b[K"


def as_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_the_demo_says_what_it_starts_before_it_starts_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_terminal(monkeypatch)
    seen: list[str] = []

    def run(*_: Any, **__: Any) -> int:
        seen.append(capsys.readouterr().err)
        return 0

    monkeypatch.setattr(demo_program, "run_demo", run)
    with pytest.raises(demo_command.typer.Exit):
        demo_command.demo()
    assert seen == ["Starting a simulated box and its daemon; the dashboard opens in some seconds.\r"]


def test_the_dashboard_says_that_it_opens_before_a_daemon_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_terminal(monkeypatch)

    def start() -> None:
        raise InterruptedError(capsys.readouterr().err)

    monkeypatch.setattr(running_daemon, "start_daemon_if_needed", start)
    with pytest.raises(InterruptedError, match="Opening the dashboard"):
        main.home()
