"""Man page and shell completions, made from the commands' own help.

`python -m sparkdash.cli.manual` writes them into `share/` of a checkout, from where they go into the wheel.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import typer.main
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # its only public name

from sparkdash import __version__, errors

SHARE = Path(__file__).resolve().parents[2] / "share"
PAGE = "man/man1/sparkdash.1"
COMPLETIONS = {
    "bash": "bash-completion/completions/sparkdash",
    "zsh": "zsh/site-functions/_sparkdash",
    "fish": "fish/vendor_completions.d/sparkdash.fish",
}

_FILES = (
    ("~/.config/sparkdash/config.toml", "settings"),
    ("~/.config/sparkdash/profiles/", "your own profiles, one YAML file per family"),
    ("~/.local/state/sparkdash/", "the database, logs, builds and measured runs"),
)
Command: TypeAlias = Any
"""Command of click, of which typer may carry its own copy."""


def share_files(app: typer.Typer) -> dict[str, str]:
    scripts = {
        path: get_completion_script(prog_name="sparkdash", complete_var="_SPARKDASH_COMPLETE", shell=shell).strip()
        for shell, path in COMPLETIONS.items()
    }
    return {PAGE: man_page(typer.main.get_command(app))} | {path: f"{text}\n" for path, text in scripts.items()}


def man_page(root: Command) -> str:
    lines = [
        '.\\" Written by `python -m sparkdash.cli.manual`; do not edit.',
        f'.TH SPARKDASH 1 "" "sparkdash {__version__}" "User Commands"',
        ".SH NAME",
        f"sparkdash \\- {_roff(root.help.strip().splitlines()[0].rstrip('.'))}",
        ".SH SYNOPSIS",
        ".B sparkdash",
        "[\\fIOPTIONS\\fR] [\\fICOMMAND\\fR] [\\fIARGS\\fR]",
        ".SH DESCRIPTION",
        *_help(root),
        ".SH OPTIONS",
        *_options(root, ("sparkdash",)),
        ".SH COMMANDS",
    ]
    for words, command in _commands(root, ("sparkdash",)):
        lines += [f".SS {_roff(' '.join(words))}", *_usage(command, words), *_help(command), *_options(command, words)]
    lines += [".SH EXIT STATUS", *_pairs((str(code), text) for code, text in exit_codes())]
    lines += [".SH FILES", *_pairs(_FILES), ".SH SEE ALSO", "podman(1), podman-build(1), systemctl(1)"]
    return "\n".join(lines) + "\n"


def _commands(group: Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Command]]:
    for name, command in getattr(group, "commands", {}).items():
        if not command.hidden:
            yield (*words, name), command
            yield from _commands(command, (*words, name))


def _usage(command: Command, words: tuple[str, ...]) -> Iterator[str]:
    context = typer.Context(command, info_name=words[-1])
    pieces = " ".join(command.collect_usage_pieces(context))
    yield ".PP"
    yield f"\\fB{_roff(' '.join(words))}\\fR {_roff(pieces)}"


def _help(command: Command) -> Iterator[str]:
    """Format the help's paragraphs; one that begins with a backspace keeps its lines."""
    for paragraph in re.split(r"\n\s*\n", (command.help or "").strip()):
        lines = paragraph.splitlines()
        if lines[0].strip() == "\b":
            yield from (".PP", ".nf", *map(_roff, lines[1:]), ".fi")
        else:
            yield from (".PP", _roff(" ".join(line.strip() for line in lines)))


def _options(command: Command, words: tuple[str, ...]) -> Iterator[str]:
    context = typer.Context(command, info_name=words[-1])
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    yield from _pairs(record for record in records if record is not None)


def _pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for left, right in pairs:
        yield from (".TP", f"\\fB{_roff(left)}\\fR", _roff(" ".join(right.split())) or "\\&")


def exit_codes() -> Iterator[tuple[int, str]]:
    yield 0, "success"
    yield 1, "a failure that none of the others names"
    named = {
        kind.exit_code: (kind.__doc__ or "").splitlines()[0].rstrip(".").lower()
        for kind in reversed(errors.SparkdashError.__subclasses__())
        if kind.__module__ == errors.__name__
    }
    yield from sorted((named | {2: f"wrong usage, or {named[2]}"}).items())
    yield 130, "ended by Ctrl-C"


def _roff(text: str) -> str:
    """Escape what roff would obey: backslashes, hyphens that are typed, a leading dot or quote."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    plain = "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in plain)
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def main() -> int:
    from sparkdash.cli.main import app

    for path, text in share_files(app).items():
        (SHARE / path).parent.mkdir(parents=True, exist_ok=True)
        (SHARE / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
