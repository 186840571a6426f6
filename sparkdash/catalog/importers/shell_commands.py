"""Simple commands of a shell text, each with the variables that it would see. Nothing is run.

Owns: assignments and exports, programs that only start another one (sudo, env, uv run), words that steer the shell.
Must not know: quotes, containers, engines.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import NamedTuple

from sparkdash.catalog.importers.report import ImportNotes
from sparkdash.catalog.importers.shell import ShellReader
from sparkdash.catalog.importers.shell_words import Value

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"(?<!\S)--?[A-Za-z][\w-]*")
_DECLARING = ("export", "readonly", "local", "declare", "typeset")
_STEERING = ("then", "do", "else", "{", "!", "time", "command", "builtin")
_STARTERS: dict[str, frozenset[str]] = {
    "exec": frozenset({"-a"}),
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "--user", "--group", "--chdir"}),
    "doas": frozenset({"-u", "-C"}),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "env": frozenset({"-u", "-C", "-S", "--unset", "--chdir"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "ionice": frozenset({"-c", "-n"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "numactl": frozenset({"-m", "-N", "-C", "-i", "-l", "-p"}),
    "timeout": frozenset({"-k", "-s"}),
    "uv run": frozenset(
        {
            "--with",
            "--with-requirements",
            "--python",
            "-p",
            "--project",
            "--extra",
            "--env-file",
            "--directory",
            "--group",
        }
    ),
    "uvx": frozenset({"--with", "--from", "--python", "-p"}),
    "poetry run": frozenset(),
    "pixi run": frozenset({"-e"}),
    "conda run": frozenset({"-n", "--name", "-p"}),
}
"""Programs that start the command after them, with their flags that take a value as the next word."""
_BRANCHING = ("if", "elif", "for", "while", "until", "case", "function")


class Command(NamedTuple):
    """Words of a simple command, and the variables that the text sets for it: exported before, or in front of it."""

    words: list[str]
    env: dict[str, str]


def parse_commands(text: str, notes: ImportNotes) -> list[Command]:
    """Parse every simple command in `text` in order, without its leading assignments and starters.

    Raises:
        ProfileError: an open quote, or far too many words.
    """
    shell = _Shell(notes)
    return [
        command for words in ShellReader(text, shell.variables, notes).commands() if (command := shell.settle(words))
    ]


class _Shell:
    """Variables of a text, as far as its own assignments tell."""

    def __init__(self, notes: ImportNotes) -> None:
        self.variables: dict[str, Value] = {}
        self._exported: dict[str, None] = {}
        self._notes = notes
        self._branches = False
        """Whether the text has come to an `if` or its kin."""

    def settle(self, words: list[str]) -> Command | None:
        """Strip assignments and words in front of the program; None when nothing is left."""
        env: dict[str, str] = {}
        while words:
            if assigned := list(takewhile(_ASSIGNMENT.fullmatch, words)):
                words = words[len(assigned) :]
                env |= self._assign(assigned, only_here=bool(words))
            elif words[0] in _DECLARING:
                self._declare(words[0], words[1:])
                return None
            elif words[0] in _STEERING:
                words = words[1:]
            elif (after := _after_starter(words)) is not None:
                words = after
            else:
                break
        if not words:
            return None
        if words[0] in _BRANCHING:
            self._branches = True
            self._notes.note(words[0], "the script branches; every command in it is read as if it ran")
            return None
        return Command(words, self._environment() | env)

    def _assign(self, assigned: list[str], *, only_here: bool) -> dict[str, str]:
        given = {name: value for word in assigned for name, _, value in [word.partition("=")]}
        if only_here:
            return given
        for name, value in given.items():
            if self._branches:
                self._note_branch(name, value)
        self.variables.update(given)
        return {}

    def _note_branch(self, name: str, value: str) -> None:
        """Name the flags of an earlier text that this one replaces, as when each branch of an `if` has its own."""
        earlier = self.variables.get(name, "")
        lost = set(_FLAG.findall(earlier)) - set(_FLAG.findall(value)) if isinstance(earlier, str) else set()
        if lost:
            why = f"is assigned more than once and the last text holds, without {', '.join(sorted(lost))}"
            self._notes.dropped(f"${name}", why)

    def _declare(self, how: str, words: list[str]) -> None:
        """Note exported names, with or without a value; the other declarations only assign."""
        for word in words:
            name, equals, value = word.partition("=")
            if equals:
                self.variables[name] = value
            if how == "export" and not word.startswith("-"):
                self._exported[name] = None

    def _environment(self) -> dict[str, str]:
        texts = ((name, self.variables.get(name)) for name in self._exported)
        return {name: value for name, value in texts if isinstance(value, str)}


def _after_starter(words: list[str]) -> list[str] | None:
    """Return the command that the first words only start; None when they start none."""
    two = " ".join(words[:2])
    name = two if two in _STARTERS else words[0].rpartition("/")[2]
    if name not in _STARTERS:
        return None
    rest = words[len(name.split()) :]
    while rest and rest[0].startswith("-"):
        rest = rest[2 if rest[0] in _STARTERS[name] else 1 :]
    if name == "timeout":
        rest = rest[1:]
    return rest
