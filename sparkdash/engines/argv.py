"""Command lines from a profile's values, and values read from them, as all engines share them. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sparkdash.domain.container import CONTAINER_PREFIX
from sparkdash.domain.profile import AUTO, PLACEHOLDER, ArgValue, ModelRef, Profile
from sparkdash.errors import ProfileError

HOST = "127.0.0.1"
"""Address that engines listen on: loopback only, since clients use the gateway."""

_SIZE = re.compile(r"(\d+)([KMGT]?)|(\d+(?:\.\d+)?)([kmgt])")
"""Sizes that vLLM's human_readable_int takes (0.32.0, utils/argparse_utils.py): no fraction before a capital letter."""
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class ListArgs(NamedTuple):
    """Flags of one engine that take lists; names with hyphens."""

    several: frozenset[str] = frozenset()
    """Flags whose values follow as words: `--sizes 1 2 4`."""
    repeated: frozenset[str] = frozenset()
    """Flags given once per value: `--middleware a --middleware b`."""


NO_LISTS = ListArgs()


def container_name(profile: str) -> str:
    """Return the container's name, `sparkdash-family.variant..node`: runtimes allow no slash and no @ in a name."""
    return f"{CONTAINER_PREFIX}{profile.replace('/', '.').replace('@', '..')}"


def served_names(profile: Profile) -> tuple[str, ...]:
    # AUTO among them, so that the gateway need not touch the body
    return (profile.name, *profile.serves, AUTO)


def target_model(profile: Profile, *, pinnable: bool = False) -> ModelRef:
    """Return the model to serve. Raises ProfileError: none, or a revision for an engine that is not `pinnable`."""
    ref = profile.models.get("target")
    if ref is None:
        raise ProfileError(
            f"Profile {profile.name} names no model to serve.",
            code="model_missing",
            hint="Add `models: {target: {path: /folder}}` or `models: {target: {hf: owner/name}}`.",
        )
    if ref.revision and not pinnable:
        raise ProfileError(
            f"Profile {profile.name} pins revision {ref.revision}, which {profile.engine} cannot be told.",
            code="revision_unsupported",
            hint="Download that revision and give its folder as `path`.",
        )
    return ref


def fill_placeholders(value: Any, models: Mapping[str, ModelRef]) -> Any:
    if isinstance(value, str):
        return PLACEHOLDER.sub(lambda hit: models[hit[1]].ref if hit[1] in models else hit[0], value)
    if isinstance(value, list):
        return [fill_placeholders(item, models) for item in value]
    if isinstance(value, dict):
        return {key: fill_placeholders(item, models) for key, item in value.items()}
    return value


def fill_words(text: str, values: Mapping[str, str]) -> str:
    return PLACEHOLDER.sub(lambda hit: values.get(hit[1], hit[0]), text)


def flag_words(args: Mapping[str, ArgValue], models: Mapping[str, ModelRef], lists: ListArgs = NO_LISTS) -> list[str]:
    """Turn entries into flags: True is bare, None and False are left out, mappings and lists are JSON (but `lists`)."""
    given = (
        (key, fill_placeholders(value, models))
        for key, value in args.items()
        if value is not None and value is not False
    )
    return [word for key, value in given for word in _flag(key, value, lists)]


def _flag(key: str, value: Any, lists: ListArgs) -> list[str]:
    flag, name = f"-{key}" if len(key) == 1 else f"--{key}", key.replace("_", "-")
    if value is True:
        return [flag]
    if isinstance(value, list) and name in lists.repeated:
        return [word for item in value for word in (flag, _word(item))]
    if isinstance(value, list) and name in lists.several:
        return [flag, *map(_word, value)] if value else []
    return [flag, _word(value)]


def lookup(args: Mapping[str, ArgValue], *names: str) -> ArgValue:
    found = {key.replace("_", "-"): value for key, value in args.items()}
    return next((found[name] for name in names if found.get(name) is not None), None)


def parse_token_count(value: ArgValue) -> int | None:
    """Parse a token count as engines write it: 32768, "32k" (thousands) or "32K" (1024s); None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return int(value)
    hit = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmM]?)", value) if isinstance(value, str) else None
    return int(float(hit[1]) * {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20}[hit[2]]) if hit else None


def parse_size(value: ArgValue) -> int | None:
    """Parse bytes as vLLM does: "10G" is 10 GiB, "10g" is 10^10; None for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or (hit := _SIZE.fullmatch(value.strip())) is None:
        return None
    return int(hit[1]) * _UNITS[hit[2]] if hit[1] else int(float(hit[3]) * _UNITS[hit[4]])


def parse_share(value: ArgValue) -> float | None:
    """Parse a share of 0..1, as a number or in quotes; None for anything else."""
    try:
        found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except ValueError:
        return None
    return found if found is not None and 0 <= found <= 1 else None


def version_of(text: str | None) -> tuple[int, ...] | None:
    """Parse the leading numbers of a version; None when it does not begin with two ("b6123", a commit)."""
    found = re.match(r"v?(\d+(?:\.\d+)+)", text or "")
    return tuple(map(int, found[1].split("."))) if found else None


def version_pair(text: str | None) -> tuple[int, int] | None:
    hit = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(hit[1]), int(hit[2])) if hit else None


def parse_object(value: ArgValue) -> dict[str, Any] | None:
    """Parse a flag's JSON object, given as one or as text; empty where it is not given, None for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return {} if value is None else value if isinstance(value, dict) else None


def overlay_args(defaults: Iterable[tuple[str, ArgValue]], args: Mapping[str, ArgValue]) -> dict[str, ArgValue]:
    """Lay the profile's args over the engine's defaults, whichever way each spells a hyphen."""
    given = {key.replace("_", "-") for key in args}
    return {key: value for key, value in defaults if key.replace("_", "-") not in given} | dict(args)


def _word(value: ArgValue) -> str:
    return json.dumps(value, separators=(",", ":")) if isinstance(value, dict | list) else str(value)
