"""Profiles as readable YAML that readers of YAML 1.1 and 1.2 understand alike, with the reasons of keys above them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import indent, wrap
from typing import Any

import yaml

from sparkdash.catalog.yaml12 import CORE, TAG

_WIDTH = 118
_SHORT = 90
"""Longest mapping or list that is written on one line."""
_SCALARS = yaml.representer.SafeRepresenter()


def dump(value: Any) -> str:
    """Render `value`: keys in order, short lists and inner mappings on one line, multi-line texts as blocks.

    Values that YAML 1.1 would misread are quoted too, since readers of exported files may speak either.
    """
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
    """Render the file: `head` as comments, then the profile."""
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
