"""The man page and the completions in `share/` are those of today's commands."""

from __future__ import annotations

import os

import pytest
import typer.main

from sparkdash.cli import manual
from sparkdash.cli.main import app

TEXTS = manual.share_files(app)


@pytest.mark.parametrize("path", TEXTS)
def test_what_is_shipped_is_made_from_today_s_help(path: str) -> None:
    file = manual.SHARE / path
    if os.environ.get("SPARKDASH_GOLDEN") == "write":
        manual.main()
    assert file.read_text() == TEXTS[path], "the commands changed: run `make share`"


def test_nothing_else_is_shipped_there() -> None:
    found = {str(file.relative_to(manual.SHARE)) for file in manual.SHARE.rglob("*") if file.is_file()}
    assert found == set(TEXTS)


def test_every_command_and_option_is_on_the_page() -> None:
    page = TEXTS[manual.PAGE].replace("\\-", "-")
    root = typer.main.get_command(app)
    for name, command in root.commands.items():  # type: ignore[attr-defined]  # a group
        assert f".SS sparkdash {name}\n" in page
        assert all(
            option in page for parameter in command.params for option in parameter.opts if option.startswith("--")
        )


def test_text_that_roff_would_obey_is_shown_as_it_is() -> None:
    command = typer.Typer(add_completion=False)

    @command.command()
    def only(word: str = typer.Option(".hidden", help=".SH not a heading \\n and --two-hyphens…")) -> None:
        """'quoted at the beginning, with a\\backslash."""

    page = manual.man_page(typer.main.get_command(command))
    assert "\n.SH not" not in page
    assert "\\&.SH not a heading \\en and \\-\\-two\\-hyphens\\[u2026]" in page
    assert "\\&'quoted" in page
