"""Profiles from a llama-swap configuration, one for each model.

Owns: its models and macros. Must not know: runtimes' and engines' flags. `${env.X}` is never looked up.
"""

from __future__ import annotations

import re
from typing import Any

from sparkdash.catalog.importers import bounded_yaml, podman_line
from sparkdash.catalog.importers.llama_swap_extras import add_filters, import_peers, settings_lines
from sparkdash.catalog.importers.report import Imported, ImportNotes, import_refused
from sparkdash.catalog.importers.shell_commands import Command, parse_commands
from sparkdash.catalog.importers.values import aliases, fill_variables, profile_name
from sparkdash.errors import ProfileError

_MACRO = re.compile(r"\$\{([A-Za-z_][\w.-]*)\}")
_PORT = "8000"
"""Placeholder for the port that llama-swap would choose; no profile keeps it."""
_MAX_CMD = 50_000
_READ = {
    "cmd", "cmdStop", "aliases", "env", "name", "description", "macros", "filters", "proxy", "checkEndpoint", "ttl",
    "concurrencyLimit", "useModelName",
}  # fmt: skip
_READ_OF_ALL = {"models", "macros", "peers", "globalTTL", "hooks", "groups", "matrix"}
_WHY = {
    "routing": "sparkdash decides by measured memory what may run together",
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
    "logTimeFormat": "sparkdash has a log of its own",
    "metricsMaxInMemory": "requests are kept in the daemon's database",
    "captureBuffer": "`capture` in config.toml records requests",
    "ui": "it belongs to llama-swap's own page",
    "performance": "the box is always measured",
    "upstream": "it belongs to llama-swap's own page",
    "apiKeys": "secrets are not copied",
    "startPort": "sparkdash chooses ports",
    "healthCheckTimeout": "sparkdash waits as long as there is progress",
}


def import_llama_swap(text: str, name: str | None = None) -> Imported:
    """Import every model whose command starts a known engine.

    Raises:
        ProfileError: the file is not such a configuration, or no model in it could be read.
    """
    data, notes = bounded_yaml.parse_bounded_yaml(text), ImportNotes()
    models = data.get("models")
    if not isinstance(models, dict) or not models:
        raise import_refused("The configuration has no `models`.")
    for key in (str(key) for key in data if key not in _READ_OF_ALL):
        _left_out(key, notes)
    found = [_model(str(model), body, data.get("macros"), notes) for model, body in models.items()]
    made = [*filter(None, found), *import_peers(data.get("peers"), notes)]
    notes.settings += settings_lines(
        data, {str(model): one for model, one in zip(models, found, strict=True) if one}, notes
    )
    if not made:
        shared = _macros(data.get("macros"), {}, ImportNotes())
        lines = (f"{model}: {_shown(body, shared)}" for model, body in models.items() if isinstance(body, dict))
        raise import_refused(
            f"No model in the configuration starts an engine that sparkdash knows.{podman_line.nearest(lines)}"
        )
    if name and len(models) == 1:
        made[0]["profile"] = name
    return notes.imported("llama-swap configuration", *podman_line.number_duplicates(made))


def _shown(body: dict[str, Any], macros: dict[str, str]) -> str:
    """Return the model's command with the shared macros filled in."""
    return _fill(str(body.get("cmd", "")), macros, ImportNotes())


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
            made[str(key)] = _fill(str(value), made, notes)
        else:
            notes.unknown(f"macros.{key}")
    return made


def _fill(text: str, macros: dict[str, str], notes: ImportNotes) -> str:
    made = fill_variables(_MACRO, text, macros)
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
    cmd = _fill(_without_comments(body["cmd"]), _macros(body.get("macros"), macros, notes), notes)
    made = _import_cmd(model, cmd, notes)
    return None if made is None else _dress(made, model, body, notes)


def _import(command: Command, model: str, notes: ImportNotes) -> dict[str, Any] | None:
    return podman_line.import_command(command, notes, profile_name(model) or None, any_server=True)


def _import_cmd(model: str, cmd: str, notes: ImportNotes) -> dict[str, Any] | None:
    """Import the first command of `cmd`; None, with a note, where it starts no known engine."""
    try:
        command = next(iter(parse_commands(_one_line(cmd), notes)), None)
        made = None if command is None else _import(command, model, notes)
    except ProfileError as error:
        notes.unknown(f"models.{model}", f"{error.message} Left out.")
        return None
    if made is None:
        notes.unknown(f"models.{model}.cmd", "starts no engine that is known here, left out")
    return made


def _one_line(cmd: str) -> str:
    """Join the lines of a YAML block, which has one per flag without the shell's continuations."""
    return " ".join(_without_comments(cmd).splitlines()).replace("\\ ", " ")


def _without_comments(cmd: str) -> str:
    """Remove lines of comment, before macros too: a macro of several lines in a comment is a comment."""
    return "\n".join(line for line in cmd.splitlines() if not line.lstrip().startswith("#"))


def _dress(made: dict[str, Any], model: str, body: dict[str, Any], notes: ImportNotes) -> dict[str, Any]:
    """Add the keys that stand beside the command."""
    about = body.get("description") or body.get("name")
    if isinstance(about, str):
        made = {"profile": made["profile"], "about": " ".join(about.split())} | made
    extra = body.get("aliases")
    names = [model, *(str(one) for one in extra if isinstance(one, str | int))] if isinstance(extra, list) else [model]
    made["serves"] = aliases([*names, *made.get("serves", [])], made["profile"])
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
