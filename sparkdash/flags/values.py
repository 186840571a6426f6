"""Whether a flag takes the value that a profile gives it.

Owns: the rules of the engines' converters (argparse, click, llama.cpp's own), and the words of a refusal. "{engine}" in
a message stands for the engine's name and version.

Pure.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sparkdash.domain.profile import PLACEHOLDER, ArgValue, EngineKind
from sparkdash.flags.table import FlagFacts, FlagTable
from sparkdash.redaction import masked

_COUNT = re.compile(r"[+-]?\d+|\d+(\.\d+)?[kmgt]|\d+[KMGT]")
"""Numbers that vLLM's human_readable_int takes."""
_INT = r"[+-]?\d+(_\d+)*"
"""Numbers that Python's int takes."""
_C_INT = r"[+-]?\d+.*"
"""Numbers that std::stoi takes: what follows the digits is left."""
_WANTED = {
    "int": "a whole number", "float": "a number", "count": "a whole number such as 8192, 8k or 8K",
    "count-or-auto": "a whole number such as 8192, 8k or 8K, or auto", "json": "a mapping",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ValueComplaint:
    """Why a value is refused. `everywhere`: no version of the table takes it, so that a fork will hardly do."""

    message: str
    hint: str
    everywhere: bool = True
    path: tuple[str | int, ...] = ()


def value_complaint(
    table: FlagTable, facts: FlagFacts, places: Sequence[int], value: ArgValue, *, negated: bool
) -> ValueComplaint | None:
    """Return why none of the versions at `places` takes the value; None when one does, or it cannot be told."""
    found = [_at(table, facts, place, value, negated=negated) for place in places]
    return found[-1] if found and all(found) else None


def _at(table: FlagTable, facts: FlagFacts, place: int, value: ArgValue, *, negated: bool) -> ValueComplaint | None:
    takes = facts.takes(place)
    if takes in ("none", "toggle"):
        return _of_switch(facts, value, negated=negated)
    if value is True:
        if takes == "optional":
            return None
        return ValueComplaint("needs a value", f"Write {_wanted(facts, place)}.")
    if takes == "pair" or _is_open(value):
        return None
    if isinstance(value, list) and takes in ("many", "append"):
        return next((hit for one in value if (hit := _of_word(table, facts, place, one))), None)
    return _of_word(table, facts, place, value)


def _of_switch(facts: FlagFacts, value: ArgValue, *, negated: bool) -> ValueComplaint | None:
    if value is True:
        return None
    name = f"no-{facts.name}" if negated else facts.name
    off = str(value).lower() in ("false", "0", "off", "no")
    if off and facts.having("takes", "toggle") and not negated:
        return ValueComplaint("is a switch and takes no value", f"Write `no-{facts.name}: true` to switch it off.")
    return ValueComplaint("is a switch and takes no value", "Remove it." if off else f"Write `{name}: true`.")


def _of_word(table: FlagTable, facts: FlagFacts, place: int, value: Any) -> ValueComplaint | None:
    kind = facts.type(place)
    if kind == "json":
        return _of_json(table, facts, place, value)
    if kind == "json-or-str":
        return None
    if (choices := facts.choices(place)) is not None and not _is_among(facts, choices, value):
        return _of_choice(table, facts, place, choices, value)
    if not _converts(kind, value, _C_INT if table.kind is EngineKind.LLAMACPP else _INT):
        return ValueComplaint(f"{_shown(value)} is not {_WANTED[kind]}", f"Write {_wanted(facts, place)}.")
    return _of_limits(facts, value)


def _converts(kind: str, value: Any, whole: str) -> bool:
    text = str(value).strip()
    if kind == "float":
        return not isinstance(value, list | dict) and _is_float(text)
    if kind in ("int", "count", "count-or-auto"):
        if kind == "count-or-auto" and text == "auto":
            return True
        pattern = whole if kind == "int" else _COUNT
        return text in ("None", "") or re.fullmatch(pattern, text) is not None
    return True


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "None"
    return True


def _of_limits(facts: FlagFacts, value: Any) -> ValueComplaint | None:
    if not facts.limits or not _is_float(str(value)) or str(value) == "None":
        return None
    number, limits = float(str(value)), facts.limits
    wrong = (
        number < limits.get("low", number)
        or number > limits.get("high", number)
        or number <= limits.get("above", number - 1)
        or number >= limits.get("below", number + 1)
    )
    if not wrong:
        return None
    return ValueComplaint(f"{_shown(value)} is not {_range(limits)}", f"Write a number {_range(limits)}.")


def _range(limits: dict[str, float]) -> str:
    words = {"low": "at least", "above": "above", "high": "at most", "below": "below"}
    return " and ".join(f"{words[key]} {limit:g}" for key, limit in limits.items())


def _is_among(facts: FlagFacts, choices: Sequence[str], value: Any) -> bool:
    text = str(value)
    if isinstance(value, bool):
        text = str(value).lower()
    if text in choices:
        return True
    return facts.folds and text.lower().replace("-", "_") in {one.lower().replace("-", "_") for one in choices}


def _of_choice(table: FlagTable, facts: FlagFacts, place: int, choices: Sequence[str], value: Any) -> ValueComplaint:
    text = str(value)
    if there := facts.listed_ever("choices", text):
        when = f"since {table.versions[min(there)]}" if min(there) > place else f"until {table.versions[max(there)]}"
        return ValueComplaint(f"{{engine}} does not take {_shown(text)} ({when})", f"Write {_listed(choices)}.", False)
    close = difflib.get_close_matches(text, choices, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"Write {_listed(choices)}."
    return ValueComplaint(f"{{engine}} does not take {_shown(value)}", hint, everywhere=False)


def _of_json(table: FlagTable, facts: FlagFacts, place: int, value: Any) -> ValueComplaint | None:
    keys = facts.keys(place)
    parsed = _parsed(value)
    if keys is None and isinstance(parsed, list):
        return None
    if not isinstance(parsed, dict):
        return ValueComplaint(f"{_shown(parsed)} is not a mapping", f"Write {_wanted(facts, place)}.")
    unknown = [] if keys is None else [key for key in parsed if key not in keys]
    return _of_key(table, facts, place, unknown[0]) if unknown else None


def _parsed(value: Any) -> Any:
    """Return the JSON that a text holds; the value itself where it is no text, or no JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _of_key(table: FlagTable, facts: FlagFacts, place: int, key: Any) -> ValueComplaint:
    """Complain about a key that the version does not know in a JSON value."""
    if there := facts.listed_ever("keys", str(key)):
        when = f"since {table.versions[min(there)]}" if min(there) > place else f"until {table.versions[max(there)]}"
        return ValueComplaint(f"{{engine}} has no key {key} in it ({when})", "Remove the key.", False, (key,))
    close = difflib.get_close_matches(str(key), facts.keys(place) or (), n=1)
    hint = f"Did you mean {close[0]}?" if close else "Remove the key."
    return ValueComplaint(f"{{engine}} has no key {key} in it", hint, False, (key,))


def _wanted(facts: FlagFacts, place: int) -> str:
    if choices := facts.choices(place):
        return _listed(choices)
    keys = facts.keys(place)
    if facts.type(place) == "json" and keys:
        return f"a mapping, with keys such as {', '.join(keys[:3])}"
    return _WANTED.get(facts.type(place), "a value")


def _listed(choices: Sequence[str]) -> str:
    shown = [one for one in choices if one != "None"]
    return f"one of {', '.join(shown)}" if len(shown) > 1 else ", ".join(shown)


def _shown(value: Any) -> str:
    text = masked(json.dumps(value, default=str) if isinstance(value, dict | list) else str(value))
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def _is_open(value: Any) -> bool:
    """Whether the value is only known at the start: a placeholder for a model, or a shell's variable."""
    return isinstance(value, str) and ("$" in value or PLACEHOLDER.fullmatch(value) is not None)
