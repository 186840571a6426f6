"""Profiles from a llama-swap configuration, one for each model and peer. `${env.X}` is never looked up."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sparkdash.catalog.importers import podman_line, values
from sparkdash.catalog.importers.shell import parse_commands, without_comments
from sparkdash.catalog.importers.values import Imported, ImportNotes, import_refused
from sparkdash.domain.profile import MODE
from sparkdash.errors import ProfileError

_OF_ENVIRONMENT = re.compile(r"\$\{env\.([A-Za-z_]\w*)\}")


def add_filters(made: dict[str, Any], model: str, filters: Any, notes: ImportNotes) -> None:
    """Add the model's filters: set and stripped parameters, and a mode for each id of `setParamsByID`."""
    for key, value in filters.items() if isinstance(filters, dict) else ():
        what = f"models.{model}.filters.{key}"
        if key == "setParams" and isinstance(value, dict) and values.is_shallow(value):
            made["request_set"] = {str(name): item for name, item in value.items()}
        elif key in ("stripParams", "strip_params") and isinstance(value, str):
            made["request_strip"] = [name for name in map(str.strip, value.split(",")) if name and name != "model"]
        elif key == "setParamsByID" and isinstance(value, dict) and values.is_shallow(value):
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


def _peer_models(peers: Any, notes: ImportNotes) -> Iterator[dict[str, Any]]:
    """Import each model of each peer as a remote service, which is never started or stopped."""
    for peer, body in peers.items() if isinstance(peers, dict) else ():
        url, models = (body.get("proxy"), body.get("models")) if isinstance(body, dict) else (None, None)
        if not isinstance(url, str) or not isinstance(models, list):
            notes.unknown(f"peers.{peer}", "has no `proxy` and `models`, left out")
            continue
        for key in (key for key in body if key not in ("proxy", "models", "apiKey")):
            notes.unknown(f"peers.{peer}.{key}")
        key_env = _key_variable(str(peer), body.get("apiKey"), notes)
        for model in models:
            own = values.profile_name(f"{peer}-{model}") or "imported"
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
    """Return lines for config.toml: what is preloaded, idle times, limits. `made`: profiles by their old id."""
    lines = []
    names = {old: str(profile["profile"]) for old, profile in made.items()}
    models = data["models"].items() if isinstance(data.get("models"), dict) else ()
    bodies = {str(old): body for old, body in models if isinstance(body, dict)}
    startup = _one_key(data.get("hooks"), "hooks", "on_startup", notes)
    preload = _one_key(startup, "hooks.on_startup", "preload", notes)
    called = {alias: str(one["profile"]) for one in made.values() for alias in one.get("serves", ())} | names
    if known := _known("hooks.on_startup.preload", preload if isinstance(preload, list) else (), called, notes):
        lines.append(f"preload = {json.dumps(known)}")
    idle = _positive(data.get("globalTTL"))
    # One that is never unloaded has no time of its own: the time of the box becomes that of each other one.
    is_for_all = idle is not None and not any(body.get("ttl") == 0 for old, body in bodies.items() if old in names)
    if is_for_all:
        lines.append(f"idle_ttl_s = {idle}")
    for old, body in bodies.items():
        if old in names:
            has_own = is_for_all or body.get("ttl", -1) != -1
            lines += _policy_lines(names[old], body if has_own else {**body, "ttl": idle})
    return lines


def _known(what: str, models: Iterable[Any], names: Mapping[str, str], notes: ImportNotes) -> list[str]:
    kept: dict[str, None] = {}
    for model in map(str, models):
        if model in names:
            kept[names[model]] = None
        else:
            notes.dropped(what, f"{model!r} is not among the profiles")
    return list(kept)


def _one_key(body: Any, where: str, key: str, notes: ImportNotes) -> Any:
    """Return what a mapping has under the one key of it that is read; the others are named."""
    for other in (str(one) for one in body if one != key) if isinstance(body, dict) else ():
        notes.unknown(f"{where}.{other}")
    return body.get(key) if isinstance(body, dict) else None


def _policy_lines(name: str, body: Mapping[str, Any]) -> list[str]:
    idle, limit = _positive(body.get("ttl")), _positive(body.get("concurrencyLimit"))
    given = [("idle_ttl_s", idle), ("max_concurrency", limit)]
    lines = [f"{key} = {value}" for key, value in given if value is not None]
    return ["", f"[policy.{json.dumps(name)}]", *lines] if lines else []


def _positive(value: Any) -> int | None:
    """Return a positive whole number; 0 means "none" there."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


_MACRO = re.compile(r"\$\{([A-Za-z_][\w.-]*)\}")
_PORT = "8000"
"""Placeholder for the port that llama-swap would choose; no profile keeps it."""
_MAX_CMD = 50_000
_READ = {
    "cmd", "aliases", "env", "name", "description", "macros", "filters", "ttl", "concurrencyLimit", "useModelName",
}  # fmt: skip
_READ_OF_ALL = {"models", "macros", "peers", "globalTTL", "hooks"}
_WHY = {
    "routing": "sparkdash decides by measured memory what may run together",
    "groups": "sparkdash decides by measured memory what runs together; `pinned` in `[policy]` keeps one loaded",
    "matrix": "sparkdash decides by measured memory what may run together",
    "profiles": "names that stand for other models have no place; give the profile an alias under `serves`",
    "selectors": "names that stand for several models have no place; `fallbacks` names who answers instead",
    "unlisted": "every profile is listed; a key may be limited to some",
    "metadata": "a profile says only what it needs",
    "capabilities": "they follow from the model",
    "compat": "sparkdash passes requests on as the engine takes them",
    "timeouts": "sparkdash waits as long as there is progress",
    "unloadTimeout": "`stop_grace_s` in config.toml holds for every engine",
    "sendLoadingState": "waiting streams are always kept alive, with the reason",
    "includeAliasesInList": "aliases are always listed",
    "logLevel": "sparkdash has a log of its own",
    "logToStdout": "sparkdash has a log of its own",
    "logRequests": "requests are kept in the daemon's database",
    "logTimeFormat": "sparkdash has a log of its own",
    "metricsMaxInMemory": "requests are kept in the daemon's database",
    "captureBuffer": "`capture` in config.toml records requests",
    "ui": "it belongs to llama-swap's own page",
    "performance": "the box is always measured",
    "upstream": "it belongs to llama-swap's own page",
    "apiKeys": "secrets are not copied",
    "startPort": "sparkdash chooses ports",
    "cmdStop": "sparkdash stops an engine by its own means",
    "proxy": "sparkdash chooses the address",
    "checkEndpoint": "sparkdash asks the engine by the path that it knows",
    "healthCheckTimeout": "sparkdash waits as long as there is progress",
}


def import_llama_swap(text: str, name: str | None = None) -> Imported:
    """Import every model whose command starts a known engine. Raises ProfileError: none could be read."""
    data, notes = values.parse_bounded_yaml(text), ImportNotes()
    models = data.get("models")
    if not isinstance(models, dict) or not models:
        raise import_refused("The configuration has no `models`.")
    for key in (str(key) for key in data if key not in _READ_OF_ALL):
        _left_out(key, notes)
    found = [_model(str(model), body, data.get("macros"), notes) for model, body in models.items()]
    made = [*filter(None, found), *_peer_models(data.get("peers"), notes)]
    notes.settings += settings_lines(
        data, {str(model): one for model, one in zip(models, found, strict=True) if one}, notes
    )
    if not made:
        shared = _macros(data.get("macros"), {}, ImportNotes())
        lines = (
            f"{model}: {_fill(str(body.get('cmd', '')), shared, ImportNotes())}"
            for model, body in models.items()
            if isinstance(body, dict)
        )
        raise import_refused(
            f"No model in the configuration starts an engine that sparkdash knows.{podman_line.nearest(lines)}"
        )
    if name and len(models) == 1:
        podman_line.rename(made[0], name)
    return notes.imported("llama-swap configuration", *podman_line.number_duplicates(made))


def _left_out(key: str, notes: ImportNotes) -> None:
    last = key.rsplit(".", 1)[-1]
    if last in _WHY:
        notes.dropped(key, _WHY[last])
    else:
        notes.unknown(key)


def _macros(given: Any, known: dict[str, str], notes: ImportNotes) -> dict[str, str]:
    """Add the given macros to `known` in their order, each with the earlier ones filled in."""
    made = dict(known)
    for key, value in given.items() if isinstance(given, dict) else ():
        if isinstance(value, str | int | float | bool):
            made[str(key)] = _fill(without_comments(str(value)), made, notes)
        else:
            notes.unknown(f"macros.{key}")
    return made


def _fill(text: str, macros: dict[str, str], notes: ImportNotes) -> str:
    made = values.fill_variables(_MACRO, text, macros)
    if len(made) > _MAX_CMD:
        raise import_refused("The macros of the configuration make a command longer than any real one.")
    for hit in _MACRO.finditer(made):
        if hit[1].startswith("env."):
            notes.note(hit[0], "is of the environment, which is never read; it stays as text")
    return made


def _model(model: str, body: Any, shared: Any, notes: ImportNotes) -> dict[str, Any] | None:
    if not isinstance(body, dict) or not isinstance(body.get("cmd"), str):
        notes.unknown(f"models.{model}", "has no `cmd`, left out")
        return None
    for key in (str(key) for key in body if key not in _READ):
        _left_out(f"models.{model}.{key}", notes)
    macros = _macros(shared, {"PORT": _PORT, "MODEL_ID": model}, notes)
    cmd = _fill(without_comments(body["cmd"]), _macros(body.get("macros"), macros, notes), notes)
    made = _import_cmd(model, cmd, notes)
    return None if made is None else _dress(made, model, body, notes)


def _import_cmd(model: str, cmd: str, notes: ImportNotes) -> dict[str, Any] | None:
    """Import the first command of `cmd`; None, with a note, where it starts no known engine."""
    try:
        # a YAML block has a line per flag, without the shell's continuations
        commands = parse_commands(" ".join(cmd.splitlines()).replace("\\ ", " "), notes, is_joined=True)
        own = values.profile_name(model) or None
        made = None
        if commands:
            made = podman_line.import_command(commands[0], notes, own)
    except ProfileError as error:
        notes.unknown(f"models.{model}", f"{error.message} Left out.")
        return None
    if made is None:
        notes.unknown(f"models.{model}.cmd", "starts no engine that is known here, left out")
    for other in commands[1:]:
        notes.dropped(" ".join(other.words), f"a further command of models.{model}.cmd, which sparkdash does not run")
    return made


def _aliases(model: str, given: Any, notes: ImportNotes) -> Iterator[str]:
    """Yield the aliases, each a word or a mapping with its `id`."""
    for one in given if isinstance(given, list) else ():
        alias = one if isinstance(one, dict) else {"id": one}
        for key in (str(key) for key in alias if key != "id"):
            _left_out(f"models.{model}.aliases.{key}", notes)
        if "id" in alias:
            yield str(alias["id"])


def _dress(made: dict[str, Any], model: str, body: dict[str, Any], notes: ImportNotes) -> dict[str, Any]:
    about = body.get("description") or body.get("name")
    if isinstance(about, str):
        made = {"profile": made["profile"], "about": " ".join(about.split())} | made
    names = [model, *_aliases(model, body.get("aliases"), notes)]
    made["serves"] = values.aliases([*names, *made.get("serves", [])], made["profile"], notes)
    env = body.get("env")
    for one in env if isinstance(env, list) else ():
        name, equals, value = str(one).partition("=")
        if equals and "image" not in made:
            made.setdefault("env", {})[name] = value
        else:
            notes.dropped(f"models.{model}.env", "is the runtime's environment, not the engine's")
    if body.get("useModelName"):
        notes.dropped(f"models.{model}.useModelName", "sparkdash tells the engine its served names")
    add_filters(made, model, body.get("filters"), notes)
    return made
