"""The first words of the commands that open the dashboard: before anything slow is imported or started."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from sparkdash import demo as demo_program
from sparkdash.cli import main, running_daemon
from sparkdash.cli import serve as demo_command


def as_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make both outputs terminals."""
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
