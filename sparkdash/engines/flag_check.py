"""Check of a profile's args by its engine's flag table.

A complaint is certain when the table has the very version and the image is the engine's own, or when all versions agree
on type, limits and arity. Pure.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from sparkdash.domain.profile import PLACEHOLDER, ArgValue, Profile
from sparkdash.engines.adapter import CommandLine
from sparkdash.engines.flag_table import FlagFacts, FlagSource, FlagTable, Versions, nearby
from sparkdash.engines.registry import adapter_of
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


def _of_all(
    table: FlagTable, facts: FlagFacts, places: Sequence[int], value: ArgValue, *, negated: bool
) -> ValueComplaint | None:
    """Return why none of the versions at `places` takes the value; None when one does, or it cannot be told."""
    found = [_at(table, facts, place, value, negated=negated) for place in places]
    return found[-1] if all(found) else None


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
    if not _converts(kind, value, _C_INT if table.syntax.reads_c_numbers else _INT):
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
    text = str(value).lower() if isinstance(value, bool) else str(value)
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
    except (ValueError, RecursionError):
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


MOST_GUESSES = 20
"""Unknown flags of a profile for which the nearest name is looked up; each takes 3 ms."""
LONGEST = 80
"""Longest part of a flag that is compared; the longest real one has 46 characters."""


class FlagFault(StrEnum):
    """Kind of a complaint."""

    UNKNOWN = "unknown"
    VALUE = "value"
    TWICE = "twice"
    DEPRECATED = "deprecated"


@dataclass(frozen=True, slots=True)
class FlagComplaint:
    """Mistake in one entry of a profile's args."""

    fault: FlagFault
    path: tuple[str | int, ...]
    """Keys below `args`."""
    message: str
    hint: str
    certain: bool


def flag_complaints(profile: Profile) -> Iterator[FlagComplaint]:
    source = adapter_of(profile).flag_source
    if source is None:
        return
    judge = _Judge(profile, source, adapter_of(profile).command_line)
    own = {key.lstrip("-").replace("_", "-") for key in profile.fork_flags}
    seen: dict[str, str] = {}
    for key, value in profile.args.items():
        if value is None or value is False or key.partition(".")[0].replace("_", "-") in own:
            continue
        yield from judge.entry(key, value)
        yield from judge.again(key, seen)


class _Judge:
    def __init__(self, profile: Profile, source: FlagSource, line: CommandLine | None) -> None:
        self._old_speculation = line.old_speculation if line else {}
        version = profile.engine_version or source.tagged_version(profile.image or "")
        self._table = source.table
        self._nests = source.syntax.nests
        self._versions: Versions = self._table.meant(version)
        self._certain = self._versions.exact and source.is_own_image(profile.image)
        self._engine = f"{source.title} {self._versions.text}"
        self._guesses = MOST_GUESSES

    def entry(self, key: str, value: ArgValue) -> Iterator[FlagComplaint]:
        head, dot, path = key.partition(".")
        facts = self._table.find(head if self._nests else key)
        if facts is None:
            yield self._unknown(key)
            return
        here = [place for place in self._versions.places if place in facts.present]
        if not here:
            yield self._absent(key, facts)
            return
        yield from self._deprecated(key, facts, here)
        if dot and self._nests:
            value = _nested(path, value)
        negated = head.replace("_", "-").startswith("no-") and not _is_spelling(self._table, facts, head)
        if found := _of_all(self._table, facts, here, value, negated=negated):
            yield self._of_value(key, facts, found)

    def _of_value(self, key: str, facts: FlagFacts, found: ValueComplaint) -> FlagComplaint:
        """Word a complaint about the value: of an abbreviated flag it is the abbreviation that is wrong."""
        head = key.partition(".")[0]
        if self._table.normal(f"--{head}" if len(head) > 1 else f"-{head}") not in self._table.by_word:
            text = f"{self._engine} has no such flag, and takes it for {facts.name}"
            return FlagComplaint(FlagFault.UNKNOWN, (key,), text, self._hint(head), self._certain)
        message = found.message.replace("{engine}", self._engine)
        certain = found.everywhere or self._certain
        return FlagComplaint(FlagFault.VALUE, (key, *found.path), message, found.hint, certain)

    def again(self, key: str, seen: dict[str, str]) -> Iterator[FlagComplaint]:
        """A complaint when an earlier key already gave the same flag."""
        facts = self._table.find(key)
        if facts is None or "." in key:
            return
        if facts.name in seen:
            text = f"is the same flag as {seen[facts.name]}"
            yield FlagComplaint(FlagFault.TWICE, (key,), text, "Keep one of them; the engine takes the last.", False)
        seen[facts.name] = key

    def _unknown(self, key: str) -> FlagComplaint:
        short = f"-{key}" if len(key) > 1 else f"--{key}"
        if (facts := self._table.by_word.get(short)) is not None and len(key) > 1:
            text = f"{self._engine} has no --{key}, only {short}"
            return FlagComplaint(FlagFault.UNKNOWN, (key,), text, f"Write {facts.name}.", self._certain)
        text = f"{self._engine} has no such flag"
        return FlagComplaint(FlagFault.UNKNOWN, (key,), text, self._hint(key), self._certain)

    @cached_property
    def _known(self) -> dict[str, str]:
        """Long names that the versions have, by their spelling with hyphens."""
        return {
            word.lstrip("-").replace("_", "-"): word.lstrip("-")
            for word, facts in self._table.by_word.items()
            if word.startswith("--") and facts.present & set(self._versions.places)
        }

    def _hint(self, key: str) -> str:
        if inner := self._old_speculation.get(key.replace("_", "-")):
            return f"Write it into `speculative-config` as `{inner}`."
        self._guesses -= 1
        close = _nearest(key, self._known) if self._guesses >= 0 else None
        hint = f"Did you mean {close}?" if close else "Remove it."
        return hint if self._certain else f"{hint} A flag of a fork belongs under `fork_flags`."

    def _absent(self, key: str, facts: FlagFacts) -> FlagComplaint:
        when = ", ".join(nearby(facts, self._table)) if facts.present else "removed"
        is_later = facts.present and min(facts.present) > max(self._versions.places)
        verb = "does not have it" if is_later else "no longer has it"
        hint = f"Write {facts.instead}." if facts.instead else "Remove it, or correct `engine_version`."
        return FlagComplaint(FlagFault.UNKNOWN, (key,), f"{self._engine} {verb} ({when})", hint, self._certain)

    def _deprecated(self, key: str, facts: FlagFacts, here: list[int]) -> Iterator[FlagComplaint]:
        if self._versions.exact and all(place in facts.having("state", "deprecated") for place in here):
            hint = f"Write {facts.instead}." if facts.instead else "The engine's `--help` names what replaces it."
            yield FlagComplaint(FlagFault.DEPRECATED, (key,), f"{self._engine} calls it deprecated", hint, False)


def _is_spelling(table: FlagTable, facts: FlagFacts, head: str) -> bool:
    return table.normal(f"--{head}") in {table.normal(word) for word in facts.spellings}


def _nested(path: str, value: ArgValue) -> ArgValue:
    for part in reversed(path.split(".")):
        value = {part.rstrip("+"): value}
    return value


_SAME = (
    ("gpu-memory-utilization", "mem-fraction-static", "kv-cache-free-gpu-memory-fraction", "kv-cache-memory-bytes"),
    ("max-model-len", "context-length", "ctx-size", "max-seq-len"),
    ("max-num-seqs", "max-running-requests", "parallel", "max-batch-size"),
    ("max-num-batched-tokens", "chunked-prefill-size", "ubatch-size", "max-num-tokens"),
    ("tensor-parallel-size", "tp-size"),
    ("pipeline-parallel-size", "pp-size"),
    ("kv-cache-dtype", "cache-type-k"),
)
"""Flags of several engines for the same thing: who changes the engine of a profile often keeps the others'."""


def _nearest(key: str, known: Mapping[str, str]) -> str | None:
    bare = key.replace("_", "-")
    if bare in known:
        return known[bare]
    if f"enable-{bare}" in known:
        return f"enable-{bare}"
    same = next((group for group in _SAME if bare in group), ())
    if named := next((known[one] for one in same if one in known), None):
        return named
    close = difflib.get_close_matches(bare[:LONGEST], known, n=1, cutoff=0.75)
    return known[close[0]] if close else None
