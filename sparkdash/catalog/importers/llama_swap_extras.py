"""Parts of a llama-swap configuration beside its models' commands: filters of requests, peers, and times.

Owns: what of them becomes keys of a profile, profiles of their own, or lines for config.toml.
Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sparkdash.catalog.importers.report import ImportNotes
from sparkdash.catalog.importers.values import is_shallow, profile_name
from sparkdash.domain.profile import MODE

_OF_ENVIRONMENT = re.compile(r"\$\{env\.([A-Za-z_]\w*)\}")


def add_filters(made: dict[str, Any], model: str, filters: Any, notes: ImportNotes) -> None:
    """Add the model's filters: set and stripped parameters, and a mode for each id of `setParamsByID`."""
    for key, value in filters.items() if isinstance(filters, dict) else ():
        what = f"models.{model}.filters.{key}"
        if key == "setParams" and isinstance(value, dict) and is_shallow(value):
            made["request_set"] = {str(name): item for name, item in value.items()}
        elif key == "stripParams" and isinstance(value, str):
            made["request_strip"] = [name for name in map(str.strip, value.split(",")) if name and name != "model"]
        elif key == "setParamsByID" and isinstance(value, dict) and is_shallow(value):
            _add_modes(made, model, value, what, notes)
        else:
            notes.unknown(what)


def _add_modes(made: dict[str, Any], model: str, by_id: Mapping[Any, Any], what: str, notes: ImportNotes) -> None:
    for name, parameters in by_id.items():
        given = str(name).replace("${MODEL_ID}", model)
        mode = given.removeprefix(f"{model}:")
        if not isinstance(parameters, dict):
            notes.unknown(f"{what}.{given}")
        elif given == model:
            made["request_set"] = made.get("request_set", {}) | parameters
            notes.note(f"{what}.{given}", "holds for the modes too, which lie over it")
        elif mode != given and MODE.fullmatch(mode):
            made.setdefault("modes", {})[mode] = parameters
        else:
            notes.unknown(f"{what}.{given}", "is no mode of this model (`NAME:MODE`), left out")


def import_peers(peers: Any, notes: ImportNotes) -> list[dict[str, Any]]:
    """Import each model of each peer as a remote service, which is never started or stopped."""
    return list(_peer_models(peers, notes))


def _peer_models(peers: Any, notes: ImportNotes) -> Iterator[dict[str, Any]]:
    for peer, body in peers.items() if isinstance(peers, dict) else ():
        url, models = (body.get("proxy"), body.get("models")) if isinstance(body, dict) else (None, None)
        if not isinstance(url, str) or not isinstance(models, list):
            notes.unknown(f"peers.{peer}", "has no `proxy` and `models`, left out")
            continue
        for key in (key for key in body if key not in ("proxy", "models", "apiKey")):
            notes.unknown(f"peers.{peer}.{key}")
        key_env = _key_variable(str(peer), body.get("apiKey"), notes)
        for model in models:
            own = profile_name(f"{peer}-{model}") or "imported"
            made = {"profile": own, "engine": "remote", "url": _with_version(url), "model_id": str(model)}
            yield made | ({"key_env": key_env} if key_env else {}) | {"serves": [f"{peer}/{model}"]}


def _with_version(url: str) -> str:
    """Return the base URL as our profiles write it; llama-swap appends the whole path of a request."""
    trimmed = url.rstrip("/")
    return trimmed if trimmed.endswith("/v1") else f"{trimmed}/v1"


def _key_variable(peer: str, key: Any, notes: ImportNotes) -> str | None:
    """Return the environment variable with the peer's key. A key that is written out is not copied."""
    if not isinstance(key, str) or not key:
        return None
    if hit := _OF_ENVIRONMENT.fullmatch(key):
        return hit[1]
    variable = re.sub(r"\W", "_", f"{peer}_API_KEY").upper()
    notes.dropped(f"peers.{peer}.apiKey", f"a secret must not be in a profile; put it into the variable {variable}")
    return variable


def settings_lines(data: Mapping[str, Any], made: Mapping[str, Mapping[str, Any]], notes: ImportNotes) -> list[str]:
    """Return lines for config.toml: what is preloaded, idle times, limits, sets. `made`: profiles by their old id."""
    lines = []
    names = {old: str(profile["profile"]) for old, profile in made.items()}
    hooks = data.get("hooks")
    startup = hooks.get("on_startup") if isinstance(hooks, dict) else None
    preload = startup.get("preload") if isinstance(startup, dict) else None
    if isinstance(preload, list) and (known := [names[str(one)] for one in preload if str(one) in names]):
        lines.append(f"preload = {json.dumps(known)}")
    if (idle := _positive(data.get("globalTTL"))) is not None:
        lines.append(f"idle_ttl_s = {idle}")
    models = data.get("models")
    for old, body in models.items() if isinstance(models, dict) else ():
        if str(old) in names and isinstance(body, dict):
            lines += _policy_lines(names[str(old)], body)
    sets = [*_groups(data.get("groups"), names, notes), *_matrix(data.get("matrix"), names, notes)]
    return [*lines, "", "[sets]", *sets] if sets else lines


def _groups(groups: Any, names: Mapping[str, str], notes: ImportNotes) -> Iterator[str]:
    """Yield a set for each group whose members run together."""
    for group, body in groups.items() if isinstance(groups, dict) else ():
        what = f"groups.{group}"
        if not isinstance(body, dict) or not isinstance(body.get("members"), list):
            notes.unknown(what)
        elif body.get("swap") is not False:
            notes.dropped(
                what, "its members run one at a time; sparkdash decides by measured memory what runs together"
            )
        else:
            for key in ("persistent", "exclusive"):
                if body.get(key) is True:
                    notes.dropped(f"{what}.{key}", "what stays loaded is `pinned` in `[policy]`, else memory decides")
            yield from _set(str(group), what, map(str, body["members"]), names, notes)


def _matrix(matrix: Any, names: Mapping[str, str], notes: ImportNotes) -> Iterator[str]:
    """Yield a set for each combination of the matrix that names no alternatives."""
    if not isinstance(matrix, dict):
        return
    given, sets = matrix.get("vars"), matrix.get("sets")
    variables = given if isinstance(given, dict) else {}
    for key in (key for key in matrix if key not in ("vars", "sets")):
        notes.dropped(f"matrix.{key}", "sparkdash decides by measured memory what may run together")
    for name, text in sets.items() if isinstance(sets, dict) else ():
        what = f"matrix.sets.{name}"
        if not isinstance(text, str) or not re.fullmatch(r"[\w.: /&-]+", text):
            notes.dropped(what, "names alternatives; `[any]` in config.toml is a name for whichever of several runs")
        else:
            members = (str(variables.get(one.strip(), one.strip())) for one in text.split("&"))
            yield from _set(str(name), what, members, names, notes)


def _set(name: str, what: str, members: Iterable[str], names: Mapping[str, str], notes: ImportNotes) -> Iterator[str]:
    kept = []
    for member in members:
        if member in names:
            kept.append(names[member])
        else:
            notes.dropped(what, f"{member!r} is not among the profiles")
    if len(kept) > 1:
        yield f"{_toml_key(name)} = {json.dumps(kept)}"


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


def _policy_lines(name: str, body: Mapping[str, Any]) -> list[str]:
    idle, limit = _positive(body.get("ttl")), _positive(body.get("concurrencyLimit"))
    given = [("idle_ttl_s", idle), ("max_concurrency", limit)]
    lines = [f"{key} = {value}" for key, value in given if value is not None]
    return ["", f"[policy.{json.dumps(name)}]", *lines] if lines else []


def _positive(value: Any) -> int | None:
    """Return a positive whole number; 0 means "none" there."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
