"""The console script: its first words come before the command line is loaded."""

from __future__ import annotations

import sys

import pytest

from sparkdash.cli import main as command_line
from sparkdash.cli import start
from sparkdash.cli.output.opening import OPENING


@pytest.mark.parametrize(("words", "told"), [(["sparkdash"], f"{OPENING}\r"), (["sparkdash", "status"], "")])
def test_the_dashboard_says_that_it_opens_before_the_command_line_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    """On a terminal, and only where the dashboard is meant."""
    seen: list[str] = []
    monkeypatch.setattr(sys, "argv", words)
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(command_line, "main", lambda: seen.append(capsys.readouterr().err))
    start.main()
    assert seen == [told]
