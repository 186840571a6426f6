"""Keys of a profile file, how a variant inherits from its base, and the problems of form in words for the author."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sparkdash.catalog.catalog import ProfileProblem, nearest
from sparkdash.catalog.document import Document, KeyPath
from sparkdash.catalog.yaml12 import WrittenFloat
from sparkdash.domain import profile as models
from sparkdash.domain.profile import Profile
from sparkdash.domain.request import ServerRoute
from sparkdash.engines.nodes import with_parallel
from sparkdash.engines.registry import adapter
from sparkdash.errors import expected
from sparkdash.redaction import is_secret_variable, masked, masked_values

PARTS: Mapping[KeyPath, type[BaseModel]] = {
    ("models", "*"): models.ModelRef,
    ("memory",): models.MemoryNeed,
    ("published", "*"): models.Published,
    ("mounts", "*"): models.Mount,
    ("sim",): models.SimSpec,
    ("sim", "speeds", "*"): models.SimSpeed,
    ("server",): models.ServerSpec,
    ("server", "metrics"): models.ServerMetrics,
    ("server", "log", "*"): models.LogStage,
    ("server", "failures", "*"): models.LogFailure,
}
_SHAPES: Mapping[type[BaseModel], str] = {
    models.ModelRef: "Write {path: /folder} or {hf: owner/name}, with `revision` beside hf to pin it.",
    models.Mount: "Write {source: /on/this/box, target: /in/the/container}.",
}
_ENUMS: Mapping[KeyPath, type[StrEnum]] = {
    ("engine",): models.EngineKind,
    ("can", "*"): models.Ability,
    ("mends_off", "*"): models.FixName,
    ("server", "kind"): models.ServerKind,
    ("server", "routes", "*"): ServerRoute,
    ("server", "ready_by"): ServerRoute,
}
_UNION = {"bool", "int", "float", "str"}
_KEY = "[key]"

MOST_PROBLEMS = 50
"""Problems of one file that are told; each takes a search for what was meant."""


class Complaint(NamedTuple):
    """A wrong value, with its path and words."""

    path: KeyPath
    message: str
    hint: str | None = None
    code: str = "wrong-value"


def complaints(error: ValidationError, *, top: tuple[str, ...]) -> list[Complaint]:
    """Word the first errors, each once, at its place; `top` are the keys that a profile itself may have."""
    found = list(dict.fromkeys(_complaint(item, top) for item in error.errors()[:MOST_PROBLEMS]))
    # one member of a union says what is wrong inside, the others only that the whole is not theirs
    return [one for one in found if not any(_inside(other.path, one.path) for other in found)]


def _inside(path: KeyPath, outer: KeyPath) -> bool:
    return len(path) > len(outer) and path[: len(outer)] == outer


def _complaint(item: ErrorDetails, top: tuple[str, ...]) -> Complaint:
    path, kind, found = tuple(item["loc"]), item["type"], item["input"]
    if kind == "extra_forbidden":
        model = _part(path[:-1])
        known = tuple(model.model_fields) if model else top
        return Complaint(path, "unknown key", similar(str(path[-1]), known), "unknown-key")
    if kind == "missing":
        return Complaint(path[:-1], f"{path[-1]!r} is missing", code="missing")
    if kind == "value_error":
        return Complaint(path, str(item["ctx"]["error"]))
    if kind == "enum":
        return _choice(path, found)
    if path[-1] == _KEY:
        hint = f'Write it in quotes: "{found}".' if kind == "string_type" else None
        return Complaint(_without_unions(path[:-1]), f"the key {found!r} {expected(item)}", hint)
    if (real := _without_unions(path)) != path:
        return Complaint(real, f"cannot have the value {_short(found)}", "Write it in quotes.")
    return Complaint(path, f"{expected(item)}, not {_short(found)}", _hint(path, kind, found))


def similar(key: str, known: tuple[str, ...]) -> str:
    known = tuple(one for one in known if one != key)  # known, and not here
    close = nearest(key.replace("-", "_"), known)
    return f"Did you mean {close[0]!r}?" if close else f"Known here: {', '.join(known)}."


def _choice(path: KeyPath, found: Any) -> Complaint:
    choices = tuple(member.value for member in _ENUMS[tuple("*" if isinstance(key, int) else key for key in path)])
    close = nearest(str(found), choices)
    hint = f"Did you mean {close[0]!r}?" if close else None
    return Complaint(path, f"must be one of {', '.join(choices)}, not {_short(found)}", hint)


def _hint(path: KeyPath, kind: str, found: Any) -> str | None:
    if kind == "string_type" and isinstance(found, int | float):
        return f'Write it in quotes: "{_short(found).lower()}".'
    if kind == "model_type" and (model := _part(path)):
        return _SHAPES.get(model) or f"Its keys: {', '.join(model.model_fields)}."
    return None


def _part(path: KeyPath) -> type[BaseModel] | None:
    for pattern, model in PARTS.items():
        if len(pattern) == len(path) and all(want in ("*", got) for want, got in zip(pattern, path, strict=True)):
            return model
    return None


def _without_unions(path: KeyPath) -> KeyPath:
    """Drop the steps that pydantic takes into the members of a union."""
    return tuple(part for part in path if not (part in _UNION or str(part).startswith(("list[", "dict["))))


def _short(value: Any) -> str:
    text = masked(value.written if isinstance(value, WrittenFloat) else repr(masked_values(value, is_secret_variable)))
    return text if len(text) <= 60 else text[:59] + "…"


FAMILY_ONLY = ("profile", "variants")
"""Keys of the file that no variant has."""

EXTENDS = "extends"
"""Key of a variant: the sister to inherit from instead of the base; null: nothing."""

NOT_INHERITED = ("serves", "published", "cannot_run", "nearest")
"""Keys of a single profile: aliases, measured figures, and reasons why it cannot run."""

MERGED = ("args", "env", "env_by_node", "request", "request_set", "modes", "memory", "sim", "silence", "server")
"""Mappings that a variant changes key by key; null removes a key. Anything else it gives replaces the base's."""

_OWN_FIELDS = {"name", "source", "built_by", "adapters", "fewer"}
"""Fields of Profile that the loader sets, and no file."""

PROFILE_KEYS = tuple(key for key in Profile.model_fields if key not in _OWN_FIELDS)
"""Keys of a file and of each of its variants."""


class Section:
    """Profile within a file: the base, or a variant. Locates its keys in the file."""

    def __init__(self, document: Document, variant: str | None) -> None:
        self.document = document
        self.variant = variant
        self.name = str(document.data.get("profile")) + (f"/{variant}" if variant else "")

    def problem(
        self, path: KeyPath, message: str, hint: str | None = None, *, code: str = "wrong-value"
    ) -> ProfileProblem:
        """Make a ProfileProblem at the key: in the variant if it has the key, else in the base."""
        return self.document.problem(self._place(path), message, hint, code=code)

    def line(self) -> int:
        return self.document.line(*(("variants", self.variant) if self.variant else ("profile",)))

    def given(self) -> dict[str, Any]:
        """Return all keys of this profile after inheritance, as Profile takes them."""
        result: dict[str, Any] = {}
        for name in reversed(lineage(self.document.data, self.variant)):
            result = {key: value for key, value in result.items() if key not in NOT_INHERITED}
            result = inherit(result, own_keys(self.document.data, name))
        result = {key: value for key, value in result.items() if value is not None}
        if isinstance(result.get("serves"), list):
            result["serves"] = [alias for alias in result["serves"] if alias != self.name]
        return result | {"name": self.name, "source": f"{self.document.file}:{self.line()}"}

    def _place(self, path: KeyPath) -> KeyPath:
        """Locate a key: in the nearest profile that has it, else at the start of the oldest in the lineage."""
        homes: list[KeyPath] = [
            ("variants", name) if name else () for name in lineage(self.document.data, self.variant)
        ]
        for known in (path, path[:1]):
            for home in homes:
                if path and self.document.has(*home, *known):
                    return home + path
        return homes[-1] + path if path else path


def sections(document: Document) -> Iterator[Section]:
    """Yield the base, then every variant that is a mapping or empty."""
    yield Section(document, None)
    variants = document.data.get("variants")
    for name, body in variants.items() if isinstance(variants, dict) else ():
        if isinstance(name, str) and (body is None or isinstance(body, dict)):
            yield Section(document, name)


def lineage(data: Mapping[str, Any], variant: str | None) -> list[str | None]:
    """List the profile and its ancestors, nearest first; None is the base. A wrong `extends` counts as none."""
    chain: list[str | None] = [variant]
    while (name := chain[-1]) is not None:
        given = data["variants"][name] or {}
        parent = given.get(EXTENDS)
        if EXTENDS in given and parent is None:
            break
        chain.append(parent if parent not in chain and is_variant(data, parent) else None)
    return chain


def is_variant(data: Mapping[str, Any], name: Any) -> bool:
    return isinstance(name, str) and name in data["variants"] and isinstance(data["variants"][name], dict | None)


def own_keys(data: Mapping[str, Any], variant: str | None) -> dict[str, Any]:
    if variant is None:
        return {key: value for key, value in data.items() if key not in FAMILY_ONLY}
    return {key: value for key, value in (data["variants"][variant] or {}).items() if key != EXTENDS}


def inherit(base: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """Lay the variant's keys over the base's. Another image is built in another way, or not at all."""
    result = dict(base)
    if variant.get("image", base.get("image")) != base.get("image"):
        result.pop("build", None)
    for key, value in variant.items():
        old = base.get(key)
        if key in MERGED and isinstance(old, dict) and isinstance(value, dict):
            result[key] = _merge(old, value)
        elif key == "models" and isinstance(old, dict) and isinstance(value, dict):
            result[key] = {name: ref for name, ref in {**old, **value}.items() if ref is not None}
        else:
            result[key] = value
    return result


def validate_section(section: Section) -> Profile | list[ProfileProblem]:
    """Validate a section into a Profile, or every problem of its form."""
    given = section.given()
    hidden = _OWN_FIELDS & (set(section.document.data) | set(own_keys(section.document.data, section.variant)))
    known = (*FAMILY_ONLY, EXTENDS, *PROFILE_KEYS)
    problems = [
        section.problem((key,), "unknown key", similar(key, PROFILE_KEYS), code="unknown-key") for key in sorted(hidden)
    ]
    problems += _missing_sizes(section, given)
    try:
        found = sorted(map(Profile.model_validate, _of_each_number(given)), key=lambda one: -one.nodes)
    except ValidationError as error:
        told = complaints(error, top=known)
        return problems + [section.problem(one.path, one.message, one.hint, code=one.code) for one in told]
    if problems:
        return problems
    largest, *fewer = (with_parallel(one, adapter(one.engine).parallel_flags) for one in found)
    return largest.replace(fewer={one.nodes: one.args for one in fewer}) if fewer else largest


def _missing_sizes(section: Section, given: dict[str, Any]) -> Iterator[ProfileProblem]:
    """Find what a profile for several numbers of nodes does not say of each."""
    numbers, parallel = given.get("nodes"), given.get("parallel")
    if not isinstance(numbers, list):
        return
    listed = ", ".join(map(str, numbers))
    if not numbers:
        yield section.problem(("nodes",), "has no number", "Write one, or several as [2, 4].")
    for way, sizes in parallel.items() if isinstance(parallel, dict) else ():
        if isinstance(sizes, list) and len(sizes) != len(numbers):
            text = f"has {len(sizes)} sizes, and `nodes` {len(numbers)} numbers"
            yield section.problem(("parallel", way), text, f"Give one size for each of {listed}, in that order.")


def _of_each_number(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the keys for each number of nodes, each with its own sizes of `parallel`."""
    numbers, parallel = given.get("nodes"), given.get("parallel")
    if not isinstance(numbers, list):
        yield given
        return
    ways = parallel if isinstance(parallel, dict) else {}
    for place, number in enumerate(numbers):
        sizes = {way: (size + [1] * place)[place] if isinstance(size, list) else size for way, size in ways.items()}
        yield given | {"nodes": number} | ({"parallel": sizes} if sizes else {})


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = _merge(result[key], value)
        else:
            result[key] = value
    return result
