"""Commands of shell text, parsed and never run.

Owns: where a command begins and ends, continuations, prompts, labels of a `case`, redirections, here-documents. The
words themselves are read by shell_words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkdash.catalog.importers.report import ImportNotes
from sparkdash.catalog.importers.shell_words import ASSIGNED, SEPARATORS, Value, WordReader

_HEREDOC = re.compile(r"<<-?[ \t]*(['\"\\]?)([A-Za-z_]\w*)\1")
_BLANKS_BEHIND = re.compile(r"(?<!\\)\\[ \t]+\n")
_REST_OF_LABEL = re.compile(r"[^;&\n()]{0,200}\)")
"""Alternatives behind the first `|` of a label of a `case`."""


class ShellReader(WordReader):
    """Parser of a whole script in one pass."""

    def __init__(self, text: str, variables: dict[str, Value], notes: ImportNotes) -> None:
        super().__init__(_continued(text.replace("\r\n", "\n"), notes), variables, notes)
        self._brackets = 0
        """Round brackets of subshells that are open."""
        self._cases = 0
        """`case … esac` that are open."""
        self._heredocs: list[str] = []
        """Closing words of the here-documents whose text begins in the next line."""

    def commands(self) -> Iterator[list[str]]:
        """Yield the words of each simple command, leading assignments included.

        Raises:
            ProfileError: an open quote, or far too many words.
        """
        words: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r" or self._text.startswith("\\\n", self._at) or self._is_prompt(words):
                self._at += 2 if char == "\\" else 1
            elif char == "#":
                self._skip_comment()
            elif char in SEPARATORS:
                self._at += 1
                yield self._ended(words, char)
                words = []
                if char == "\n":
                    self._skip_heredocs()
            elif char in "<>":
                self._redirection(words)
            else:
                words += self._word(may_assign=all(map(ASSIGNED.match, words)))
        yield words

    def _ended(self, words: list[str], separator: str) -> list[str]:
        """Return the words of the command that `separator` ends; a label of a `case` is none."""
        if words[:1] == ["case"]:
            self._cases += 1
            words = words[:3]
        elif words[:1] == ["esac"]:
            self._cases = max(self._cases - 1, 0)
        elif self._cases and not self._brackets and self._ends_label(separator):
            return []
        self._brackets = max(self._brackets + {"(": 1, ")": -1}.get(separator, 0), 0)
        return words

    def _ends_label(self, separator: str) -> bool:
        return separator == ")" or (separator == "|" and _REST_OF_LABEL.match(self._text, self._at) is not None)

    def _is_prompt(self, words: list[str]) -> bool:
        """Whether a prompt of a terminal, `$ `, stands here before a command."""
        return not words and self._text.startswith("$ ", self._at)

    def _redirection(self, words: list[str]) -> None:
        if hit := _HEREDOC.match(self._text, self._at):
            self._heredocs.append(hit[2])
            self._at = hit.end()
            return
        if words and words[-1] in ("1", "2"):
            words.pop()
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in "<>&| \t":
            self._at += 1
        target = "".join(self._word())
        if not target.startswith("/dev/") and target not in ("1", "2", "-"):
            sign = self._text[start : self._at]
            self._notes.dropped(sign, "is a redirection to the shell; in quotes it is a value")

    def _skip_heredocs(self) -> None:
        """Skip the texts of the here-documents of the line that ended here."""
        for closing in self._heredocs:
            end = re.compile(rf"^\t*{closing}[ \t]*$", re.MULTILINE).search(self._text, self._at)
            self._notes.dropped(f"<<{closing}", "the text of a here-document is not read")
            self._at = end.end() if end else len(self._text)
        self._heredocs.clear()


def _continued(text: str, notes: ImportNotes) -> str:
    """Take out the blanks between a backslash and its line's end, where a web page often has them."""
    text, count = _BLANKS_BEHIND.subn("\\\n", text)
    if count:
        notes.rewritten("\\", "with blanks behind it at a line's end; a shell would end the command there")
    return text
