"""Shell text as simple commands, parsed in one pass and never run; what only a shell could know stays as it is written.

The standard library's shlex forgets which quotes a word had, and variables are not filled in between single quotes.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from sparkdash.catalog.importers.values import MAX_COMMAND, ImportNotes, import_refused, too_long
from sparkdash.redaction import is_secret_variable, masked


def _split_fields(parts: list[str]) -> list[str]:
    """Split the last part, the text of an unquoted variable, at its white space, as a shell does.

    Returns the words that are complete; `parts` keeps what the next characters are added to.
    """
    text = parts.pop()
    pieces = text.split()
    if not pieces:
        if text and any(parts):
            done = ["".join(parts)]
            parts.clear()
            return done
        return []
    done = []
    if text[0].isspace() and any(parts):
        done.append("".join(parts))
        parts.clear()
    if len(pieces) > 1:
        done.append("".join(parts) + pieces[0])
        parts.clear()
        done += pieces[1:-1]
    parts.append(pieces[-1])
    if text[-1].isspace():
        done.append("".join(parts))
        parts.clear()
    return done


_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*|[\d@])|\{([A-Za-z_]\w*|\d+|@)(\[@\])?\})")
_ARGUMENT = re.compile(r"\$\{?[\d@]")
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


def note_lost_text(name: str, earlier: Value, later: Value, notes: ImportNotes) -> None:
    """Name the words of an earlier text that a later one replaces, as when each branch of a script has its own."""
    before, after = (" ".join(one) if isinstance(one, list) else one for one in (earlier, later))
    lost = before if " ".join(before.split()) not in " ".join(after.split()) else ""
    if lost and not is_secret_variable(name):
        notes.dropped(f"${name}", f"is assigned more than once and the last text holds, not {masked(lost)}")


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
        """Read the next word: an unquoted variable may give several, `${NAME[@]}` its array's, `NAME=(…)` none."""
        self._count_word()
        parts: list[str] = []
        words: list[str] = []
        spliced: list[str] | None = None
        quoted = False
        while self._at < len(self._text) and (char := self._text[self._at]) not in " \t\r<>" + SEPARATORS:
            if char == "'":
                parts.append(self._single())
                quoted = True
            elif char == '"':
                spliced = self._double(parts)
                quoted = True
            elif char in "$`":
                self._filled = False
                spliced = self._dollar(parts)
                if self._filled and not (may_assign and ASSIGNED.match("".join(parts))):
                    words += _split_fields(parts)
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
        if not text.endswith("+=") and old is not None:
            note_lost_text(name, old, words, self._notes)
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
            if not _ARGUMENT.match(hit[0]):
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
        reader = WordReader(word, self._variables, self._notes, self._depth + 1, literal=self._literal)
        made = reader.text_of_word()
        self._count_growth(made)
        return made

    def text_of_word(self) -> str:
        """Read the whole text as one word, separators included. Raises ProfileError: an open quote."""
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


_HEREDOC = re.compile(r"<<-?[ \t]*(['\"\\]?)([A-Za-z_]\w*)\1")
_BLANKS_BEHIND = re.compile(r"(?<!\\)\\[ \t]+\n")
_NEXT_FLAG = re.compile(r"\s--?[A-Za-z]")
_REST_OF_LABEL = re.compile(r"[^;&\n()]{0,200}\)")
"""Alternatives behind the first `|` of a label of a `case`."""


class ShellReader(WordReader):
    """Parser of a whole script in one pass."""

    def __init__(self, text: str, variables: dict[str, Value], notes: ImportNotes, *, is_joined: bool = False) -> None:
        # a web page often has blanks between a backslash and its line's end
        text, count = _BLANKS_BEHIND.subn("\\\n", text.replace("\r\n", "\n"))
        if count:
            notes.rewritten("\\", "with blanks behind it at a line's end; a shell would end the command there")
        super().__init__(text, variables, notes)
        self._is_joined = is_joined
        self._brackets = 0
        """Round brackets of subshells that are open."""
        self._cases = 0
        """Open `case … esac`, each branch of which is read."""
        self._heredocs: list[str] = []
        """Closing words of the here-documents whose text begins in the next line."""

    def commands(self) -> Iterator[list[str]]:
        """Yield the words of each simple command, leading assignments included. Raises ProfileError."""
        words: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if self._is_blank(words):
                self._at += 2 if char == "\\" else 1
            elif char == "#":
                self._skip_joined_comment() if self._is_joined else self._skip_comment()
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

    def _skip_joined_comment(self) -> None:
        """Skip a comment up to the next flag: YAML has joined the lines that it stood between."""
        start = self._at
        self._skip_comment()
        if hit := _NEXT_FLAG.search(self._text, start, self._at):
            self._at = hit.start()
        self._notes.dropped(self._text[start : self._at].strip(), "a comment; what follows it in the command is read")

    def _ended(self, words: list[str], separator: str) -> list[str]:
        """Return the words of the command that `separator` ends; none for a label of a `case`."""
        if words[:1] == ["case"]:
            self._cases += 1
            words = words[:3]
        elif words[:1] == ["esac"]:
            self._cases = max(self._cases - 1, 0)
        elif self._ends_label(separator):
            return []
        self._brackets = max(self._brackets + {"(": 1, ")": -1}.get(separator, 0), 0)
        return words

    def _ends_label(self, separator: str) -> bool:
        if not self._cases or self._brackets:
            return False
        return separator == ")" or (separator == "|" and _REST_OF_LABEL.match(self._text, self._at) is not None)

    def _is_blank(self, words: list[str]) -> bool:
        """Whether nothing of a command stands here: white space, a line that goes on, or a terminal's prompt, `$ `."""
        blank = (" ", "\t", "\r", "\\\n")
        return self._text.startswith(blank if words else (*blank, "$ "), self._at)

    def _redirection(self, words: list[str]) -> None:
        if hit := _HEREDOC.match(self._text, self._at):
            self._heredocs.append(hit[2])
            self._at = hit.end()
            return
        if words and words[-1] in ("1", "2") and self._text[self._at - 1].isdigit():
            words.pop()  # which of the program's outputs; with a blank behind it, it is a word
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


_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_DECLARING = ("export", "readonly", "local", "declare", "typeset")
_STEERING = ("then", "do", "else", "{", "!", "time", "command", "builtin")
_STARTERS: dict[str, frozenset[str]] = {
    "exec": frozenset({"-a"}),
    "sudo": frozenset({"-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T", "--user", "--group", "--chdir"}),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "env": frozenset({"-u", "-C", "-S", "--unset", "--chdir"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "numactl": frozenset({"-m", "-N", "-C", "-i", "-l", "-p"}),
    "taskset": frozenset({"-c", "--cpu-list"}),
    "timeout": frozenset({"-k", "-s"}),
    "uv run": frozenset({
        "--with", "--with-requirements", "--python", "-p", "--project", "--extra", "--env-file", "--directory",
        "--group",
    }),
    "uvx": frozenset({"--with", "--from", "--python", "-p"}),
}  # fmt: skip
"""Programs that start the command after them, with their flags that take a value as the next word."""
_PLAIN_STARTERS = ("exec", "env", "nohup", "setsid")
_BRANCHING = ("if", "elif", "for", "while", "until", "case", "function")


class Command(NamedTuple):
    """Words of a simple command, and the variables that the text sets for it: exported before, or in front of it."""

    words: list[str]
    env: dict[str, str]


def parse_commands(
    text: str, notes: ImportNotes, *, is_joined: bool = False, arguments: Sequence[str] = ()
) -> list[Command]:
    """Parse each simple command without assignments and starters in front. Raises ProfileError.

    `is_joined`: the lines of one command were joined before. `arguments`: $1, $2 and so on of a text of `sh -c`.
    """
    shell = _Shell(notes)
    if arguments:
        shell.variables |= {"@": list(arguments)} | {str(at): word for at, word in enumerate(arguments, start=1)}
    reader = ShellReader(text, shell.variables, notes, is_joined=is_joined)
    return [command for words in reader.commands() if (command := shell.settle(words))]


_COMMENT = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*")|(?<!\S)#[^\n]*""")


def without_comments(text: str) -> str:
    """Cut comments at the ends of lines, outside of quotes. Lines that YAML has joined are left to the parser."""
    return _COMMENT.sub(lambda hit: hit[1] or "", text) if "\n" in text.strip() else text


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
                starter, words = words[: len(words) - len(after)], after
                if len(starter) > 1 or starter[0] not in _PLAIN_STARTERS:
                    why = "starts the engine in its own way; a profile has no key for it"
                    self._notes.dropped(" ".join(starter), why)
            else:
                break
        if not words:
            return None
        if words[0] in _BRANCHING:
            self._branches = True
            self._notes.note(" ".join(words), "the script branches; every command in it is read as if it ran")
            return None
        return Command(words, self._environment() | env)

    def _assign(self, assigned: list[str], *, only_here: bool) -> dict[str, str]:
        given: dict[str, str] = {}
        for word in assigned:
            name, _, value = word.partition("=")
            old = self.variables.get(name.removesuffix("+"), "")
            given[name.removesuffix("+")] = f"{old}{value}" if name.endswith("+") and isinstance(old, str) else value
        if only_here:
            return given
        for name, value in given.items():
            if self._branches:
                note_lost_text(name, self.variables.get(name, ""), value, self._notes)
        self.variables.update(given)
        return {}

    def _declare(self, how: str, words: list[str]) -> None:
        """Note exported names, with or without a value; the other declarations only assign."""
        self._assign(list(filter(_ASSIGNMENT.fullmatch, words)), only_here=False)
        if how == "export":
            names = (word.partition("=")[0].removesuffix("+") for word in words if not word.startswith("-"))
            self._exported |= dict.fromkeys(names)

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
