"""Values as readable YAML that YAML 1.1 and 1.2 readers understand alike.

Owns: quoting, and the layout of lines. Must not know the meaning of keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from sparkdash.catalog.yaml.yaml12 import CORE, TAG

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
        """Indent a list's dashes by two columns."""
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
