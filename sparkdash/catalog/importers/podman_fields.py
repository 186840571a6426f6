"""Profile fields from the flags of a container runtime's `run`, and environment variables of an engine.

Owns: which flag becomes which key of a profile, and that a secret's value becomes none. Must not know: engines' flags,
scripts.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sparkdash.catalog.importers.podman_flags import SILENT, note_left_out
from sparkdash.catalog.importers.report import ImportNotes
from sparkdash.catalog.importers.values import in_home, typed_value
from sparkdash.domain.container import LABEL_PROFILE, LABEL_SERVES
from sparkdash.redaction import is_secret_variable

_LABEL = f"{LABEL_PROFILE}="
_ALIASES = f"{LABEL_SERVES}="
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_PLACE = "/sparkdash/"
"""Prefix of sparkdash's own caches in a container."""
_OWN_VARIABLES = ("LLAMA_ARG_LOAD_MODE=none", "LLAMA_ARG_NO_MMAP=1")
"""Variables that sparkdash itself sets for a llama-server, and that an import therefore drops."""


def container_fields(options: list[tuple[str, str | None]], notes: ImportNotes) -> dict[str, Any]:
    """Make the keys of a profile that the runtime's flags set; the others are named in `notes`."""
    made: dict[str, Any] = {"env": {}, "env_from": [], "mounts": [], "tmpfs": [], "gpu": False}
    for key, value in options:
        if _gpu(key, value):
            made["gpu"] = True
        elif value and key in _CARRIED:
            _CARRIED[key](key, value, made, notes)
        elif key not in SILENT:
            note_left_out(key, value, notes)
    if made["gpu"]:
        del made["gpu"]
    else:
        notes.note("gpu: false", "the command hands no GPU in")
    return made


def _named(_key: str, value: str, made: dict[str, Any], _notes: ImportNotes) -> None:
    made["name"] = made.get("name") or value


def _labelled(key: str, value: str, made: dict[str, Any], notes: ImportNotes) -> None:
    if value.startswith(_LABEL):
        made["name"] = value.removeprefix(_LABEL)
    elif value.startswith(_ALIASES):
        made["names"] = value.removeprefix(_ALIASES).split(",")
    elif not value.startswith("sparkdash."):
        note_left_out(key, value, notes)


def _entrypoint(_key: str, value: str, made: dict[str, Any], _notes: ImportNotes) -> None:
    made["entrypoint"] = _entrypoint_words(value)


def _entrypoint_words(value: str) -> list[str]:
    """Return the words of `--entrypoint`: podman takes a JSON list, or one program."""
    listed = typed_value(value)
    return list(map(str, listed)) if isinstance(listed, list) else [value] if value else []


def _shm_size(_key: str, value: str, made: dict[str, Any], _notes: ImportNotes) -> None:
    made["shm_size"] = value


def _tmpfs(_key: str, value: str, made: dict[str, Any], _notes: ImportNotes) -> None:
    made["tmpfs"].append(value)


def _env(_key: str, value: str, made: dict[str, Any], notes: ImportNotes) -> None:
    add_variable(value, made, notes)


def _gpu(key: str, value: str | None) -> bool:
    return key == "gpus" or (key == "device" and "nvidia" in (value or "")) or (key, value) == ("runtime", "nvidia")


def add_variable(value: str, made: dict[str, Any], notes: ImportNotes) -> None:
    """Add `NAME=text` or `NAME` to `made`; only by its name when the value is a reference or a secret."""
    name, equals, text = value.partition("=")
    if text.startswith(_OWN_PLACE) or value in _OWN_VARIABLES:
        return
    if _VARIABLE.fullmatch(name) and (not equals or text in (f"${name}", f"${{{name}}}")):
        made["env_from"].append(name)
        notes.note(f"-e {name}", "taken from the daemon's environment at the start; its value was not looked up")
    elif _VARIABLE.fullmatch(name) and is_secret_variable(name):
        made["env_from"].append(name)
        notes.dropped(
            f"-e {name}",
            "a secret must not be in a profile: its value was not kept, set it in the daemon's environment",
        )
    elif equals and name:
        made["env"][name] = text
    else:
        notes.unknown(f"-e {name}")


def _mount(key: str, value: str, made: dict[str, Any], notes: ImportNotes) -> None:
    mount = _volume(value) if key == "volume" else _long_mount(value)
    if mount is None:
        notes.unknown(f"--{key} {value}", "only a folder of the host at a place in the container is understood")
    elif not mount["target"].startswith(_OWN_PLACE):
        mount["source"] = in_home(mount["source"])
        if "$" in mount["source"]:
            notes.note(mount["source"], "a folder with a variable in it; write the real one")
        made["mounts"].append(mount)


_CARRIED: dict[str, Callable[[str, str, dict[str, Any], ImportNotes], None]] = {
    "name": _named,
    "label": _labelled,
    "entrypoint": _entrypoint,
    "shm-size": _shm_size,
    "tmpfs": _tmpfs,
    "env": _env,
    "volume": _mount,
    "mount": _mount,
}
"""Flags of the runtime that a profile has keys for, each with what it adds to the mapping."""


def _volume(value: str) -> dict[str, Any] | None:
    source, _, rest = value.partition(":") if not value.startswith("${") else _after_brace(value)
    target, _, mode = rest.partition(":")
    if not target or not source.startswith(("/", "~", "$", ".")):
        return None
    return _as_mount(source, target, read_only="ro" in mode.split(","))


def _after_brace(value: str) -> tuple[str, str, str]:
    end = max(value.find("}"), 0)
    head, colon, rest = value[end:].partition(":")
    return value[:end] + head, colon, rest


def _long_mount(value: str) -> dict[str, Any] | None:
    parts = dict(part.partition("=")[::2] for part in value.split(","))
    source, target = (
        parts.get("source") or parts.get("src"),
        parts.get("target") or parts.get("dst") or parts.get("destination"),
    )
    if parts.get("type", "bind") != "bind" or not source or not target:
        return None
    return _as_mount(source, target, read_only=bool({"readonly", "ro"} & set(parts)))


def _as_mount(source: str, target: str, *, read_only: bool) -> dict[str, Any]:
    mount: dict[str, Any] = {"source": source, "target": target}
    return mount if read_only else mount | {"read_only": False}


def fill_from_script(container: dict[str, Any], exported: Mapping[str, str], notes: ImportNotes) -> None:
    """Give `-e NAME` the text that the script exports under that name, unless it is a secret."""
    for name in [name for name in container["env_from"] if name in exported and not is_secret_variable(name)]:
        container["env_from"].remove(name)
        container["env"][name] = exported[name]
        notes.rewritten(f"-e {name}", "with the text that the script itself exports")
