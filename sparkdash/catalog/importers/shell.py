"""Shell text as commands, parsed and never run.

Owns: quotes, continuations, comments, literal variables of the same text. What only a shell could know (the
environment, `$(…)`) stays in the words as it is written. The standard library's shlex forgets which quotes a word had,
and variables may be filled in only in unquoted and double-quoted words. One pass, no backtracking.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from sparkdash.catalog.importers.report import ImportNotes, import_refused
from sparkdash.catalog.importers.values import MAX_COMMAND, too_long

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(\[@\])?(?::?-([^{}$`]*))?\})")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_DECLARING = ("export", "readonly", "local", "declare")
_PREFIXES = ("then", "do", "else", "exec", "sudo", "nohup", "time", "command", "{", "!")
_BRANCHING = ("if", "elif", "for", "while", "until", "case", "function")
_SEPARATORS = ";|&\n()"
_MAX_WORDS = 20_000

Value = str | list[str]


def parse_commands(text: str, notes: ImportNotes) -> list[list[str]]:
    """Parse every simple command in `text` in order, without its leading assignments.

    Raises:
        ProfileError: an open quote, a here-document, or far too many words.
    """
    variables: dict[str, Value] = {}
    reader = _Reader(text, variables, notes)
    return [kept for words in reader.commands() if (kept := _settle(words, variables, notes))]


def _settle(words: list[str], variables: dict[str, Value], notes: ImportNotes) -> list[str]:
    """Strip assignments and words that only steer the shell from the front."""
    while words and words[0] in (*_PREFIXES, *_DECLARING):
        if words[0] == "export" and len(words) > 1:
            notes.note(words[1].partition("=")[0], "is exported by the script; add it under env if the engine needs it")
        words = words[1:]
    if words and words[0] in _BRANCHING:
        notes.note(words[0], "the script branches; every command in it is read as if it ran")
        return []
    assigned = list(takewhile(_ASSIGNMENT.fullmatch, words))
    for word in assigned:
        name, _, value = word.partition("=")
        variables[name] = value
    if 0 < len(assigned) < len(words):
        names = ", ".join(word.partition("=")[0] for word in assigned)
        notes.note(names, "is set for one command only; add it under env if the engine needs it")
    return words[len(assigned) :]


class _Reader:
    """Parser of the text in one pass."""

    def __init__(self, text: str, variables: dict[str, Value], notes: ImportNotes) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._variables = variables
        self._notes = notes
        self._count = 0
        self._grown = 0

    def commands(self) -> Iterator[list[str]]:
        words: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r" or self._text.startswith("\\\n", self._at):
                self._at += 2 if char == "\\" else 1
            elif char == "#":
                self._skip_comment()
            elif char in _SEPARATORS:
                self._at += 1
                yield words
                words = []
            elif char in "<>":
                self._redirection(words)
            else:
                words += self._word()
        yield words

    def _skip_comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _redirection(self, words: list[str]) -> None:
        if self._text.startswith("<<", self._at):
            raise import_refused(
                "The script has a here-document (<<), whose text cannot be told from commands.",
                "Give the command alone, for instance through `sparkdash profiles import -`.",
            )
        if words and words[-1] in ("1", "2"):
            words.pop()
        while self._at < len(self._text) and self._text[self._at] in "<>&| \t":
            self._at += 1
        self._word()

    def _word(self, *, in_array: bool = False) -> list[str]:
        """Read the next word; a whole `${NAME[@]}` gives as many as the array has, `NAME=(…)` none."""
        self._count_word()
        parts: list[str] = []
        spliced: list[str] | None = None
        while self._at < len(self._text) and (char := self._text[self._at]) not in " \t\r<>" + _SEPARATORS:
            if char == "'":
                parts.append(self._single())
            elif char == '"':
                spliced = self._double(parts)
            elif char in "$`":
                spliced = self._dollar(parts)
            else:
                parts.append(self._character())
        text = "".join(parts)
        if not in_array and self._begins_array(text):
            self._array(text)
            return []
        return spliced if spliced is not None and not text else [text]

    def _count_word(self) -> None:
        self._count += 1
        if self._count > _MAX_WORDS:
            raise import_refused(f"The script has more than {_MAX_WORDS} words.")

    def _character(self) -> str:
        """Read one unquoted character; after a backslash any character is literal, and a line's end is nothing."""
        if self._text[self._at] == "\\":
            self._at += 2
            return self._text[self._at - 1 : self._at].replace("\n", "")
        self._at += 1
        return self._text[self._at - 1]

    def _begins_array(self, text: str) -> bool:
        """Whether `text` is the `NAME=` or `NAME+=` of an array, whose bracket follows."""
        return self._text.startswith("(", self._at) and re.fullmatch(r"[A-Za-z_]\w*\+?=", text) is not None

    def _array(self, text: str) -> None:
        self._at += 1
        words: list[str] = []
        while self._at < len(self._text) and (char := self._text[self._at]) != ")":
            if char == "#":
                self._skip_comment()
            elif char in " \t\r<>" + _SEPARATORS:
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            else:
                words += self._word(in_array=True)
        self._at += 1
        name = text.rstrip("+=")
        old = self._variables.get(name)
        self._variables[name] = [*old, *words] if text.endswith("+=") and isinstance(old, list) else words

    def _single(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise self._open_quote("'")
        body = self._text[self._at + 1 : end]
        self._at = end + 1
        return body

    def _double(self, parts: list[str]) -> list[str] | None:
        opened, self._at = self._at, self._at + 1
        spliced: list[str] | None = None
        parts.append("")
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return spliced
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`", "\n"):
                parts.append(self._text[self._at + 1].replace("\n", ""))
                self._at += 2
            elif char in "$`":
                spliced = self._dollar(parts)
            else:
                parts.append(char)
                self._at += 1
        self._at = opened
        raise self._open_quote('"')

    def _dollar(self, parts: list[str]) -> list[str] | None:
        """Expand a variable that the text itself assigns; otherwise keep the words as written."""
        if hit := _VARIABLE.match(self._text, self._at):
            self._at = hit.end()
            return self._variable(hit, parts)
        if self._text.startswith("$(", self._at) or self._text[self._at] == "`":
            parts.append(self._substitution())
            return None
        parts.append(self._text[self._at])
        self._at += 1
        return None

    def _variable(self, hit: re.Match[str], parts: list[str]) -> list[str] | None:
        name, default = hit[1] or hit[2], hit[4]
        value = self._variables.get(name, default)
        self._grown += sum(map(len, value)) + len(value) if isinstance(value, list) else len(value or "")
        if self._grown > MAX_COMMAND:
            raise too_long()
        if isinstance(value, list):
            return list(value)
        if value is None:
            self._notes.note(hit[0], "is of the environment, which is never read; it stays as text")
        elif name in self._variables:
            self._notes.note(f"${name}", "replaced by the text that the script itself assigns to it")
        else:
            self._notes.note(f"${name}", "replaced by the default that the script gives it")
        parts.append(hit[0] if value is None else value)
        return None

    def _substitution(self) -> str:
        start, depth = self._at, 0
        closing = self._text.find("`", start + 1) if self._text[start] == "`" else -1
        if closing > 0:
            self._at = closing + 1
        while closing < 0 and self._at < len(self._text):
            depth += {"(": 1, ")": -1}.get(self._text[self._at], 0)
            self._at += 1
            if depth == 0 and self._text[self._at - 1] == ")":
                break
        body = self._text[start : self._at]
        self._notes.note(body, "is a command's output, and no command is run; it stays as text")
        return body

    def _open_quote(self, quote: str) -> Exception:
        line = self._text.count("\n", 0, self._at) + 1
        return import_refused(
            f"The quote {quote} opened in line {line} is never closed.", "Correct the quotes of the command."
        )
