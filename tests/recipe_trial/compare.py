"""Words of a command line as flags with values, and what differs between two of them."""

from __future__ import annotations

import json
import re
from typing import Any

from sparkdash.domain.profile import EngineKind
from sparkdash.engines.flag_table import FlagTable, flag_table

_OURS = {
    "host", "port", "served-model-name", "alias", "enable-prompt-tokens-details", "metrics", "load-mode", "no-mmap",
    "enable-metrics", "enable-cache-report", "decode-log-interval", "disable-access-log-for-endpoints",
    "uvicorn-access-log-exclude-prefixes", "model", "model-path", "hf-repo", "revision", "api-key", "nnodes",
    "node-rank", "master-addr", "master-port", "headless", "dist-init-addr", "bind", "model-name",
}  # fmt: skip
"""Flags that sparkdash sets, or that name the model, which a profile has elsewhere."""

Flags = dict[str, list[Any]]


def flags_of(words: list[str], kind: EngineKind) -> Flags:
    """Flags by their long name, with their values in order; JSON and numbers are read."""
    table = flag_table(kind)
    found: Flags = {}
    current: list[Any] | None = None
    for word in words:
        if word == "&":
            break
        if hit := re.fullmatch(r"-O=?(\d)", word):
            current = found.setdefault("optimization-level", [])
            current.append(int(hit[1]))
        elif re.match(r"--?[A-Za-z]", word) and not re.fullmatch(r"-\d.*", word):
            name, equals, value = word.partition("=")
            current = found.setdefault(_long(name, table), [])
            if equals:
                current.append(_read(value))
        elif current is not None:
            current.append(_read(word))
    return _folded(found)


def _long(name: str, table: FlagTable | None) -> str:
    if table is None:
        return name.lstrip("-")
    if name.startswith("-O") and table.kind is EngineKind.VLLM:
        return "optimization-level"
    head, dot, path = name.partition(".")
    facts = table.by_word.get(table.normal(head)) or (table.find(head[2:]) if head.startswith("--") else None)
    bare = head.lstrip("-").replace("_", "-")
    if facts and not bare.startswith("no-"):
        bare = facts.name.replace("_", "-")
    return f"{bare}{dot}{path}"


def _read(text: str) -> Any:
    try:
        return json.loads(text.replace("{{", "{").replace("}}", "}") if text.startswith("{{") else text)
    except ValueError:
        return {"True": True, "False": False}.get(text, text)


def _folded(found: Flags) -> Flags:
    """Dotted flags as keys of their mapping."""
    made: Flags = {}
    for name, values in found.items():
        head, *path = name.split(".")
        if not path:
            made.setdefault(head, []).extend(values)
            continue
        holder = made.setdefault(head, [{}])
        node = holder[0] if holder and isinstance(holder[0], dict) else {}
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = values[0] if values else True
    return made


def differences(source: Flags, made: Flags, remarks: str) -> list[str]:
    """What the profile lacks or says otherwise without a remark that names it."""
    found = []
    for name, values in source.items():
        if name in _OURS or name in remarks or name.replace("-", "_") in remarks:
            continue
        if name not in made:
            found.append(f"lost: {name} {values}")
        elif _plain(made[name]) != _plain(values):
            found.append(f"other: {name}: {values} became {made[name]}")
    found += [f"new: {name} {made[name]}" for name in made if name not in source and name not in _OURS]
    return found


def _plain(values: list[Any]) -> Any:
    return json.dumps([_without_models(one) for one in values], sort_keys=True, default=str)


def _without_models(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_models(one) for key, one in value.items()}
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
