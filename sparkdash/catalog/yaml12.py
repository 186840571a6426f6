"""YAML 1.2 (core schema, spec section 10.3.2, with 1.1's merge keys) read with line marks, on top of libyaml.

ruamel.yaml takes 16 to 23 times as long for the shipped profiles: 0.43 to 0.64 s instead of 0.03 s.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import indent, wrap
from typing import Any, NamedTuple

import yaml
from yaml import events

PARSER: Any = yaml.CBaseLoader if yaml.__with_libyaml__ else yaml.BaseLoader
TAG = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT, _STR = (f"{TAG}{kind}" for kind in ("null", "bool", "int", "float", "str"))
_MERGE = "<<"
CORE = (
    (_NULL, re.compile(r"(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]),
    (_BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")),
    (_INT, re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"), list("-+0123456789")),
    (
        _FLOAT,
        re.compile(
            r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
        ),
        list("-+.0123456789"),
    ),
)
"""Tags of plain scalars in the order of matching, with their possible first characters."""
_BY_FIRST = {
    first: tuple((tag, pattern) for tag, pattern, begins in CORE if first in begins)
    for first in {first for _, _, begins in CORE for first in begins}
}
MAX_DEPTH = 30
"""Limit of nesting, aliases written out; the interpreter, and libyaml's own composer, run out of stack far above it."""
MAX_SIZE = 20_000
"""Limit of a document's values with aliases written out, and one per 100 characters; the largest profile has 737.
Nine anchors in 1 KB of text stand for 10^9 values.
"""
_SHOWN = 40


class NotYaml(ValueError):  # noqa: N818 - said of a text
    """Reason why a text cannot be read. `line` and `column` count from 1, None when unknown."""

    def __init__(
        self, reason: str, line: int | None = None, column: int | None = None, *, duplicate: str | None = None
    ) -> None:
        super().__init__(reason)
        self.line = line
        self.column = column
        self.duplicate = duplicate
        """Key that is given twice, when that is the reason."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Position from 1 of a value's key (in a list, of the value), and the marks of its parts."""

    line: int
    column: int
    inner: "Mapping[str | int, Mark]" = field(default_factory=dict)


_Marks = dict[Any, Mark]


def read_yaml(text: str) -> tuple[Any, Mark]:
    """Parse the one document into plain values with marks; None for an empty one. Raises NotYaml."""
    try:
        return _Reader(PARSER(text)).document()
    except yaml.reader.ReaderError as error:
        before = text.encode()[: error.position].decode(errors="replace")
        code = error.character
        reason = f"the character {f'U+{code:04X}' if isinstance(code, int) else repr(code)} is not allowed"
        raise NotYaml(reason, before.count("\n") + 1, len(before) - before.rfind("\n")) from None
    except yaml.MarkedYAMLError as error:
        reason = " ".join(str(error.problem or error.context).split())
        raise _at(error.problem_mark or error.context_mark, reason) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise NotYaml(" ".join(str(error).split())) from None


class _Anchored(NamedTuple):
    value: Any
    marks: _Marks
    size: int
    height: int


class _Reader:
    """Builder of values from events. An alias repeats its anchor's value without a copy, and counts as one."""

    def __init__(self, parser: Any) -> None:
        self._next: Callable[[], Any] = parser.get_event
        self._anchors: dict[str, _Anchored | None] = {}
        """Anchored values; None while one is being read."""
        self._size = 0
        self._deepest = 0

    def document(self) -> tuple[Any, Mark]:
        self._next()  # the stream's start
        if not isinstance(self._next(), events.DocumentStartEvent):
            return None, Mark(1, 1)
        first = self._next()
        value, inner = self._value(first, 0)
        self._next()  # the document's end
        if isinstance(second := self._next(), events.DocumentStartEvent):
            raise _at(second.start_mark, "a second document begins here")
        return value, _mark(first, inner)

    def _value(self, event: Any, depth: int) -> tuple[Any, _Marks]:
        if isinstance(event, events.AliasEvent):
            return self._again(event, depth)
        if event.anchor is not None:
            return self._anchored(event, depth)
        return self._read(event, depth)

    def _read(self, event: Any, depth: int) -> tuple[Any, _Marks]:
        if isinstance(event, events.ScalarEvent):
            self._count(event, 1 + len(event.value) // 100, depth)
            return _scalar(event), {}
        self._count(event, 1, depth)
        return (
            self._mapping(event, depth) if isinstance(event, events.MappingStartEvent) else self._sequence(event, depth)
        )

    def _anchored(self, event: Any, depth: int) -> tuple[Any, _Marks]:
        before, deepest, self._deepest = self._size, self._deepest, depth
        self._anchors[event.anchor] = None
        value, marks = self._read(event, depth)
        self._anchors[event.anchor] = _Anchored(value, marks, self._size - before, self._deepest - depth)
        self._deepest = max(self._deepest, deepest)
        return value, marks

    def _again(self, event: Any, depth: int) -> tuple[Any, _Marks]:
        if event.anchor not in self._anchors:
            raise _at(event.start_mark, f"there is no anchor &{event.anchor} above")
        if (known := self._anchors[event.anchor]) is None:
            raise _at(event.start_mark, f"&{event.anchor} contains itself")
        self._count(event, known.size, depth + known.height)
        return known.value, known.marks

    def _count(self, event: Any, size: int, depth: int) -> None:
        self._size += size
        self._deepest = max(self._deepest, depth)
        if depth > MAX_DEPTH:
            raise _at(event.start_mark, f"nested deeper than {MAX_DEPTH}")
        if self._size > MAX_SIZE:
            raise _at(event.start_mark, f"with its aliases written out, it has more than {MAX_SIZE} values")

    def _sequence(self, start: Any, depth: int) -> tuple[list[Any], _Marks]:
        _untagged(start, "seq")
        values: list[Any] = []
        marks: _Marks = {}
        while not isinstance(event := self._next(), events.SequenceEndEvent):
            value, inner = self._value(event, depth + 1)
            marks[len(values)] = _mark(event, inner)
            values.append(value)
        return values, marks

    def _mapping(self, start: Any, depth: int) -> tuple[dict[Any, Any], _Marks]:
        _untagged(start, "map")
        values: dict[Any, Any] = {}
        marks: dict[Any, Mark] = {}
        own: set[Any] = set()
        while not isinstance(event := self._next(), events.MappingEndEvent):
            key, merge = self._key(event, depth)
            if key in own:
                raise _at(event.start_mark, "a key that is given twice", duplicate=str(key))
            own.add(key)
            item = self._next()
            value, inner = self._value(item, depth + 1)
            if not merge:
                values[key], marks[key] = value, _mark(event, inner)
                continue
            for name, brought, mark in _merged(item, value, inner):
                if name not in values:
                    values[name], marks[name] = brought, mark
        return values, marks

    def _key(self, event: Any, depth: int) -> tuple[Hashable, bool]:
        key, _ = self._value(event, depth + 1)
        if isinstance(key, dict | list):
            raise _at(event.start_mark, "a key that is no word")
        return key, key == _MERGE and isinstance(event, events.ScalarEvent) and not event.style


def _merged(event: Any, value: Any, marks: _Marks) -> Iterator[tuple[Any, Any, Mark]]:
    """Yield keys, values and marks that `<<` brings in; of several mappings the first with a key wins."""
    several = [(one, marks[index].inner) for index, one in enumerate(value)] if isinstance(value, list) else None
    for one, inner in several or [(value, marks)]:
        if not isinstance(one, dict):
            raise _at(event.start_mark, "<< takes a mapping or a list of mappings")
        yield from ((name, item, inner[name]) for name, item in one.items())


def _untagged(event: Any, kind: str) -> None:
    if event.tag not in (None, "!", TAG + kind):
        raise _at(event.start_mark, f"the tag {_short(event.tag)} is not known")


def _scalar(event: Any) -> Any:
    text: str = event.value
    tag = event.tag
    if tag is None:
        tried = () if event.style else _BY_FIRST.get(text[:1], ())
        tag = next((tag for tag, pattern in tried if pattern.fullmatch(text)), _STR)
    if (make := _MAKE.get(tag)) is None:
        raise _at(event.start_mark, f"the tag {_short(tag)} is not known")
    try:
        return make(text)
    except (ValueError, LookupError):
        shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
        raise _at(event.start_mark, f"{shown!r} is no {tag.removeprefix(TAG)}") from None


def _integer(text: str) -> int:
    return int(text[2:], {"o": 8, "x": 16}[text[1]]) if text[:2] in ("0o", "0x") else int(text)


class WrittenFloat(float):
    """Number that remembers its text: of `engine_version: 0.30` the author is told to write "0.30", and not "0.3"."""

    written: str


def _number(text: str) -> float:
    plain = text.lower()
    number = float(plain.replace(".", "") if plain.endswith((".inf", ".nan")) else plain)
    if not re.fullmatch(r"\d+\.\d*0", text) or text == repr(number):
        return number
    kept = WrittenFloat(number)
    kept.written = text
    return kept


_MAKE: dict[str, Callable[[str], Any]] = {
    _STR: str,
    "!": str,
    _NULL: lambda _: None,
    _BOOL: lambda text: {"true": True, "false": False}[text.lower()],
    _INT: _integer,
    _FLOAT: _number,
}


def _short(tag: str) -> str:
    return f"!!{tag.removeprefix(TAG)}" if tag.startswith(TAG) else tag


def _mark(event: Any, inner: Mapping[str | int, Mark]) -> Mark:
    place = event.start_mark
    return Mark(place.line + 1, place.column + 1, inner)


def _at(place: Any, reason: str, *, duplicate: str | None = None) -> NotYaml:
    if place is None:
        return NotYaml(reason, duplicate=duplicate)
    return NotYaml(reason, place.line + 1, place.column + 1, duplicate=duplicate)


_WIDTH = 118
_SHORT = 90
"""Longest mapping or list that is written on one line."""
_SCALARS = yaml.representer.SafeRepresenter()


def dump(value: Any) -> str:
    """Render `value`: keys in order, short inner lists and mappings on one line; quoted for readers of YAML 1.1."""
    text: str = yaml.serialize(
        _node(value, 0), Dumper=_Dumper, width=_WIDTH, indent=2, allow_unicode=True, explicit_start=False
    )
    return text


class _Dumper(yaml.SafeDumper):  # type: ignore[misc] # PyYAML has no types
    """Dumper that quotes what either version of YAML would not read as text, and indents lists in mappings."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - PyYAML's word
        super().increase_indent(flow, False)


for _tag, _pattern, _first in CORE:
    _Dumper.add_implicit_resolver(_tag, _pattern, _first)


def _node(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return _mapping_node(value, depth)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _sequence_node(value, depth)
    if isinstance(value, str):
        return yaml.ScalarNode(f"{TAG}str", value, style="|" if "\n" in value else None)
    return _SCALARS.represent_data(value)


def _mapping_node(value: Mapping[Any, Any], depth: int) -> Any:
    pairs = [(_node(key, depth + 1), _node(item, depth + 1)) for key, item in value.items()]
    flow = not value or (depth > 1 and _fits(value, list(value.values())))
    return yaml.MappingNode(f"{TAG}map", pairs, flow_style=flow)


def _sequence_node(value: Sequence[Any], depth: int) -> Any:
    flow = not value or (depth > 0 and _fits(value, value))
    return yaml.SequenceNode(f"{TAG}seq", [_node(item, depth + 1) for item in value], flow_style=flow)


def _fits(value: Any, items: Sequence[Any]) -> bool:
    return len(str(value)) < _SHORT and not any(isinstance(item, Mapping | list | tuple) for item in items)


COLUMNS = 110
STEP = "  "

Reasons = Mapping[tuple[str, ...], str]
"""Reasons by the path of their key; every key on the way is a plain word."""


def annotated_yaml(profile: Mapping[str, Any], reasons: Reasons, head: Iterable[str]) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in head) + "".join(_keys(profile, reasons, ()))


def _keys(node: Mapping[str, Any], reasons: Reasons, path: tuple[str, ...]) -> Iterator[str]:
    for key, value in node.items():
        here = (*path, key)
        for line in wrap(reasons.get(here, ""), COLUMNS - 2 - len(STEP * len(path)), break_long_words=False):
            yield f"# {line}\n"
        if any(other[: len(here)] == here != other for other in reasons):
            yield f"{key}:\n" + indent("".join(_keys(value, reasons, here)), STEP)
        else:
            yield dump({key: value})
