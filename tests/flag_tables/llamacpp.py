"""Flags of llama-server, from the definitions in llama.cpp's `common/arg.cpp`."""

import re
from pathlib import Path

from tests.flag_tables.observed import Observed

_START = re.compile(r"add_opt\(common_arg\(")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_HANDLER = re.compile(
    r"\]\s*\(\s*common_params\s*&\s*\w*\s*(?:,\s*(?P<type>[\w: ]+?)\s*&?\s*\w*)?\s*(?P<second>,[^)]*)?\)"
)
_CHOICES = re.compile(r"[{\[<]([\w.-]+(?:[,|][\w.-]+)+)[}\]>]")

_TRUTHS = ("enabled", "true", "1", "disabled", "false", "0")
"""Words that llama.cpp takes for on and off."""


def flags(root: Path) -> list[Observed]:
    """All flags of llama-server in a tree that holds the folder `common`."""
    text = (root / "common/arg.cpp").read_text()
    found = []
    for hit in _START.finditer(text):
        inner, rest = _balanced(text, hit.end() - 1)
        calls = text[rest : text.find("add_opt(", rest) if text.find("add_opt(", rest) > 0 else len(text)]
        calls = calls[: calls.find(";")]
        if _of_server(calls):
            found.append(_definition(inner))
    return [one for one in found if one.names]


def _balanced(text: str, start: int) -> tuple[str, int]:
    """Text inside the parenthesis at `start`, and where it ends."""
    depth, index = 0, start
    while True:
        char = text[index]
        if char == '"':
            hit = _STRING.match(text, index)
            assert hit is not None
            index = hit.end()
            continue
        if char == "'" and text[index + 2] == "'":
            index += 3
            continue
        if text.startswith("//", index):
            index = text.index("\n", index)
            continue
        depth += (char in "({[") - (char in ")}]")
        index += 1
        if depth == 0:
            return text[start + 1 : index - 1], index


def _of_server(calls: str) -> bool:
    examples = re.search(r"set_examples\(\{([^}]*)\}", calls)
    excludes = re.search(r"set_excludes\(\{([^}]*)\}", calls)
    if excludes and "LLAMA_EXAMPLE_SERVER" in excludes[1]:
        return False
    if "set_preset_only" in calls:
        return False
    return examples is None or "LLAMA_EXAMPLE_SERVER" in examples[1] or "LLAMA_EXAMPLE_COMMON" in examples[1]


def _definition(inner: str) -> Observed:
    head, _, tail = inner.partition("}")
    names = _STRING.findall(head)
    negations: list[str] = []
    tail = tail.lstrip(", \n")
    if tail.startswith("{"):
        second, _, tail = tail.partition("}")
        negations = _STRING.findall(second)
        tail = tail.lstrip(", \n")
    handler = _HANDLER.search(inner)
    kind = (handler["type"] or "").strip() if handler else "std::string"
    one = Observed(sorted(names, key=lambda name: (not name.startswith("--"), -len(name))))
    if kind == "bool" or negations:
        one.takes, one.type = "toggle", "bool"
        one.names += negations
    elif not kind:
        one.takes, one.type = "none", "bool"
    elif handler and handler["second"]:
        one.takes = "pair"
    else:
        one.type = "int" if kind == "int" else "str"
        hint = _STRING.match(tail)
        values = _CHOICES.fullmatch(hint[1]) if hint else None
        if values and one.type == "str" and ".." not in values[1]:
            words = re.split(r"[,|]", values[1])
            one.choices = [*words, *(_TRUTHS if {"on", "off"} <= set(words) else ())]
    if "argument has been removed" in inner or re.search(r"\barg_removed\(", inner):
        one.state = "removed"
    elif re.search(r'"\s*[\[(]?deprecated\b', inner, re.IGNORECASE):
        one.state = "deprecated"
    return one
