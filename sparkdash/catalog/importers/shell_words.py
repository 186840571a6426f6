"""Words of shell text, parsed one after another and never run.

Owns: quotes, comments, literal variables of the same text, the splitting of unquoted variables. Must not know: where a
command ends. What only a shell could know (the environment, `$(…)`) stays in the words as it is written. The standard
library's shlex forgets which quotes a word had, and variables may be filled in only in unquoted and double-quoted
words. One pass, no backtracking.
"""

from __future__ import annotations

import re
from functools import cached_property

from sparkdash.catalog.importers.report import ImportNotes, import_refused
from sparkdash.catalog.importers.shell_fields import ESCAPED, split_fields, unescaped
from sparkdash.catalog.importers.values import MAX_COMMAND, too_long

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(\[@\])?\})")
_WITH_WORD = re.compile(r"\$\{([A-Za-z_]\w*|\d+|[@*])(:?[-+=?])")
"""Start of `${NAME:-word}` and its kin; a script's own arguments are never set."""
_BRACES = re.compile(r"\$\{|\}")
ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_MAYBE_EMPTY = re.compile(r"\$\{([A-Za-z_]\w*)\[[@*]\](?::?-\}|:?\+\"?\$\{\1\[[@*]\]\}\"?\})")
"""An array that may be empty under `set -u`: `${NAME[@]:-}` or `${NAME[@]+"${NAME[@]}"}`."""
SEPARATORS = ";|&\n()"
_MAX_WORDS = 20_000
_MAX_DEPTH = 20
"""Words inside of words, as in `${A:-${B:-x}}`."""

Value = str | list[str]


class WordReader:
    """Parser of words, from one place of the text to the next."""

    def __init__(
        self, text: str, variables: dict[str, Value], notes: ImportNotes, depth: int = 0, *, literal: bool = False
    ) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._variables = variables
        self._notes = notes
        self._depth = depth
        self._literal = literal
        """Whether quotes and backslashes are plain characters, as in a compose file's values."""
        self._count = 0
        self._grown = 0
        self._filled = False
        """Whether the last variable was replaced by its text."""

    def _skip_comment(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _word(self, *, in_array: bool = False, may_assign: bool = False) -> list[str]:
        """Read the next word. An unquoted variable may give several, a whole `${NAME[@]}` as many as the array has,
        `NAME=(…)` none.
        """
        self._count_word()
        parts: list[str] = []
        words: list[str] = []
        spliced: list[str] | None = None
        quoted = False
        while self._at < len(self._text) and (char := self._text[self._at]) not in " \t\r<>" + SEPARATORS:
            if char == "'" or self._text.startswith("$'", self._at):
                parts.append(self._single() if char == "'" else self._escaped())
                quoted = True
            elif char == '"' or self._text.startswith('$"', self._at):
                self._at += char == "$"
                spliced = self._double(parts)
                quoted = True
            elif char in "$`":
                self._filled = False
                spliced = self._dollar(parts)
                if self._filled and not (may_assign and ASSIGNED.match("".join(parts))):
                    words += split_fields(parts)
            else:
                parts.append(self._character())
        text = "".join(parts)
        if not in_array and self._begins_array(text):
            self._array(text)
            return []
        if spliced is not None and not text:
            return [*words, *spliced]
        return [*words, text] if text or quoted else words

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
            elif char in " \t\r<>" + SEPARATORS:
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

    def _escaped(self) -> str:
        """Read `$'…'`, in which backslashes stand for control characters."""
        if not (hit := ESCAPED.match(self._text, self._at)):
            raise self._open_quote("$'")
        self._at = hit.end()
        return unescaped(hit[1])

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
        if (hit := _MAYBE_EMPTY.match(self._text, self._at)) and not self._literal:
            self._at = hit.end()
            return self._array_words(hit, parts)
        if hit := _VARIABLE.match(self._text, self._at):
            self._at = hit.end()
            return self._variable(hit, parts)
        if (hit := _WITH_WORD.match(self._text, self._at)) and self._depth < _MAX_DEPTH:
            if (end := self._closings.get(self._at)) is not None:
                parts.append(self._with_word(hit, end))
                return None
        elif self._text.startswith("$(", self._at) or self._text[self._at] == "`":
            parts.append(self._substitution())
            return None
        parts.append(self._text[self._at])
        self._at += 1
        return None

    @cached_property
    def _closings(self) -> dict[int, int]:
        """Place of the `}` that closes the `${` at each place."""
        opened: list[int] = []
        found: dict[int, int] = {}
        for hit in _BRACES.finditer(self._text):
            if hit[0] == "}":
                if opened:
                    found[opened.pop()] = hit.start()
            else:
                opened.append(hit.start())
        return found

    def _variable(self, hit: re.Match[str], parts: list[str]) -> list[str] | None:
        value = self._variables.get(hit[1] or hit[2])
        self._count_growth(value)
        if isinstance(value, list):
            return list(value)
        if value is not None and ("$(" in value or "`" in value):
            value = None  # its own quotes would end those of the text around it
            self._notes.note(hit[0], "is a command's output, and no command is run; it stays as text")
        elif value is None:
            self._notes.note(hit[0], "is of the environment, which is never read; it stays as text")
        else:
            self._notes.note(f"${hit[1] or hit[2]}", "replaced by the text that the script itself assigns to it")
            self._filled = True
        parts.append(hit[0] if value is None else value)
        return None

    def _array_words(self, hit: re.Match[str], parts: list[str]) -> list[str]:
        """Return the words of an array that may be empty; none where the text never fills it."""
        value = self._variables.get(hit[1])
        self._count_growth(value)
        if isinstance(value, str):
            parts.append(value)
        elif value is None:
            self._notes.note(hit[0], "is of the environment, which is never read; taken as not set")
        return list(value) if isinstance(value, list) else []

    def _with_word(self, hit: re.Match[str], end: int) -> str:
        """Expand `${NAME:-word}`, `${NAME:+word}` and their kin, as for a variable that is set only by this text."""
        name, operator = hit[1], hit[2]
        whole, word = self._text[self._at : end + 1], self._text[hit.end() : end]
        self._at = end + 1
        value = self._variables.get(name)
        text = " ".join(value) if isinstance(value, list) else value
        is_set = text is not None and (text != "" or not operator.startswith(":"))
        if operator[-1] == "?" and not is_set:
            self._notes.note(whole, "is of the environment, which is never read; it stays as text")
            return whole
        self._filled = is_set or not {'"', "'"} & set(word)
        if operator[-1] == "+":
            if text is None:
                self._notes.note(whole, "is of the environment, which is never read; taken as not set")
            return self._expanded(word) if is_set else ""
        why = "replaced by the text that the script itself assigns to it"
        self._notes.note(f"${name}", why if is_set else "replaced by the default that the script gives it")
        self._count_growth(text if is_set else None)
        return (text or "") if is_set else self._expanded(word)

    def _expanded(self, word: str) -> str:
        """Expand the word of a `${NAME:-word}`."""
        reader = WordReader(word, self._variables, self._notes, self._depth + 1, literal=self._literal)
        made = reader.text_of_word()
        self._count_growth(made)
        return made

    def text_of_word(self) -> str:
        """Read the whole text as one word, separators included.

        Raises:
            ProfileError: an open quote.
        """
        parts: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if self._literal and (char != "$" or self._text.startswith("$(", self._at)):
                parts.append(char)
                self._at += 1
            elif char == "'":
                parts.append(self._single())
            elif char == '"':
                self._double(parts)
            elif char in "$`":
                parts += self._dollar(parts) or ()
            else:
                parts.append(self._character())
        return "".join(parts)

    def _count_growth(self, value: Value | None) -> None:
        self._grown += sum(map(len, value)) + len(value) if isinstance(value, list) else len(value or "")
        if self._grown > MAX_COMMAND:
            raise too_long()

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
