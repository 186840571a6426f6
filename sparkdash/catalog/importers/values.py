"""Shared parts of the importers: remarks, values of a profile out of words, foreign YAML within limits."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sparkdash.catalog import yaml12
from sparkdash.domain.profile import AUTO
from sparkdash.errors import ProfileError
from sparkdash.redaction import is_secret, is_secret_variable, masked, masked_values

Kind = Literal["unknown", "dropped", "rewritten", "note"]


@dataclass(frozen=True, slots=True)
class Remark:
    """Difference between the profile and its source. Never holds a secret's value."""

    kind: Kind
    what: str
    """Flag or key, as the source spells it."""
    why: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}: {self.why}"


@dataclass(frozen=True, slots=True)
class Imported:
    """Imported profiles, one mapping per family as in a profile file, with the remarks."""

    form: str
    profiles: tuple[dict[str, Any], ...]
    remarks: tuple[Remark, ...]
    settings: tuple[str, ...] = ()
    """Lines for config.toml that say what the source says for its whole box, or about when a profile runs."""


@dataclass(slots=True)
class ImportNotes:
    """Collector of remarks, without duplicates."""

    found: dict[Remark, None] = field(default_factory=dict)
    settings: list[str] = field(default_factory=list)

    def unknown(self, what: str, why: str = "not understood, left out") -> None:
        """Note an unknown key or flag."""
        self._add("unknown", what, why)

    def dropped(self, what: str, why: str) -> None:
        """Note a key that is understood and left out on purpose."""
        self._add("dropped", what, why)

    def rewritten(self, what: str, why: str) -> None:
        """Note a key that the profile expresses differently."""
        self._add("rewritten", what, why)

    def note(self, what: str, why: str) -> None:
        """Note something that deserves a look."""
        self._add("note", what, why)

    def imported(self, form: str, *profiles: dict[str, Any]) -> Imported:
        safe = tuple(map(self._without_secrets, profiles))
        return Imported(form, safe, tuple(self.found), tuple(self.settings))

    def _without_secrets(self, profile: dict[str, Any]) -> dict[str, Any]:
        """Keep a variable with a secret by its name alone, and mask secrets elsewhere."""
        env = {name: str(text) for name, text in profile.get("env", {}).items()}
        secret = [one for one, text in env.items() if masked(text) != text or is_secret(text, one, is_secret_variable)]
        for name in secret:
            self.dropped(f"-e {name}", NO_SECRETS)
        made = {key: value if key == "env" else masked_values(value) for key, value in profile.items()}
        for key in (key for key, value in made.items() if value != profile[key]):
            self.dropped(key, "a secret must not be in a profile: *** stands for it")
        left = {name: text for name, text in profile.get("env", {}).items() if name not in secret}
        made |= {"env": left, "env_from": [*profile.get("env_from", []), *secret]}
        return {key: value for key, value in made.items() if value or key not in ("env", "env_from")}

    def _add(self, kind: Kind, what: str, why: str) -> None:
        what = masked(what)
        self.found[Remark(kind, what if len(what) <= 200 else what[:199] + "…", masked(why))] = None


NO_SECRETS = "a secret must not be in a profile: its value was not kept, set it in the daemon's environment"


def import_refused(message: str, hint: str | None = None) -> ProfileError:
    return ProfileError(masked(message), code="import_refused", hint=hint)


def parse_bounded_yaml(text: str) -> dict[str, Any]:
    """Parse the document into plain values. Raises ProfileError: no YAML, no mapping, or beyond the limits."""
    try:
        data, _ = yaml12.read_yaml(text)
    except yaml12.NotYaml as error:
        raise import_refused(f"It is not valid YAML: {_why(error)}") from None
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise import_refused("The YAML holds no mapping of words.")
    return data


def _why(error: yaml12.NotYaml) -> str:
    if error.duplicate:
        return f"the key {error.duplicate!r} is given twice. Keep one of the two."
    return f"line {error.line}: {error}." if error.line else f"{error}."[:160]


_INT = re.compile(r"-?(0|[1-9]\d{0,14})")
_FLOAT = re.compile(r"-?\d{1,9}\.\d{1,9}")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")
_LITERALS = {"true": True, "false": False, "null": None}
_MAX_DEPTH = 12
MAX_COMMAND = 600_000
"""Limit of a command in characters; above the limit of an input, as every literal script passes through unchanged."""
_HOME = re.compile(r"\A\$(?:HOME|\{HOME\}|\{env\.HOME\})(?=/)")
"""The owner's home as shells and llama-swap name it."""


def typed_value(word: str) -> Any:
    """Convert to a number, a JSON mapping or list, or keep the text where the value would print differently."""
    if _INT.fullmatch(word):
        return int(word)
    if _FLOAT.fullmatch(word):
        return float(word)
    if word[:1] in "{[" and word.count("{") + word.count("[") <= 200:
        value = json_or_none(word)
        if value is None and word.startswith("{{"):  # escaped braces of a recipe's template
            value = json_or_none(word.replace("{{", "{").replace("}}", "}"))
        return value if value is not None and is_shallow(value) else word
    return word


def dotted_value(word: str) -> Any:
    """Convert the value of a dotted flag such as `--kwargs.enable_thinking false`, which vLLM reads as JSON."""
    return _LITERALS[word] if word in _LITERALS else typed_value(word)


def json_or_none(word: str) -> Any:
    try:
        return json.loads(word, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def fill_variables(pattern: re.Pattern[str], text: str, values: Mapping[str, str]) -> str:
    """Replace every match whose first group is in `values`. Raises ProfileError: it outgrows any real command."""
    size = len(text)

    def put(hit: re.Match[str]) -> str:
        nonlocal size
        value = values.get(hit[1], hit[0])
        size += len(value)
        if size > MAX_COMMAND:
            raise too_long()
        return value

    return pattern.sub(put, text)


def too_long() -> ProfileError:
    return import_refused(f"With its variables filled in, it is longer than {MAX_COMMAND} characters.")


def is_shallow(value: Any, depth: int = 0) -> bool:
    if depth > _MAX_DEPTH:
        return False
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(is_shallow(item, depth + 1) for item in items)


def profile_name(text: str) -> str:
    """Return the nearest valid profile name; "" when nothing can be kept."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:80].rstrip("-._")
    return f"{name}-profile" if name == AUTO else name


def aliases(names: list[str], own: str, notes: ImportNotes) -> list[str]:
    """List the names that a profile may serve beside its own, without duplicates; note those that it may not."""
    found = [name for name in dict.fromkeys(names) if name not in (own, AUTO)]
    for lost in (name for name in found if not _ALIAS.fullmatch(name)):
        notes.unknown(lost, "is no name that clients could use, left out")
    return list(filter(_ALIAS.fullmatch, found))


def in_home(text: str) -> str:
    """Write a path below `$HOME` with the `~` that profiles have for it."""
    return _HOME.sub("~", text)


def model_ref(text: str) -> dict[str, str]:
    """Return a folder, or a repository on the hub. A path with a variable stays a visible path."""
    if text.startswith(("/", "~", "$", ".")) or "$" in text or text.endswith(".gguf"):
        return {"path": text}
    return {"hf": text}


def _no_constant(name: str) -> Any:
    raise ValueError(name)
