"""Profiles from `podman run` and `docker run` command lines, and scripts of them.

Owns: the runtime's flags. Must not know: engines' flags, files. Nothing is run, and only the text is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from sparkdash.catalog.importers import engine_line
from sparkdash.catalog.importers.engine_line import EnginePart
from sparkdash.catalog.importers.podman_flags import SILENT, note_left_out, split_options
from sparkdash.catalog.importers.report import Imported, ImportNotes, import_refused
from sparkdash.catalog.importers.shell import parse_commands
from sparkdash.catalog.importers.values import aliases, profile_name
from sparkdash.domain.container import LABEL_PROFILE, LABEL_SERVES
from sparkdash.redaction import is_secret_variable

RUNTIMES = ("podman", "docker")
DEFAULT_SHM = "8g"
"""Default shared memory that sparkdash gives engines other than llama.cpp."""

_LABEL = f"{LABEL_PROFILE}="
_ALIASES = f"{LABEL_SERVES}="
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_PLACE = "/sparkdash/"
"""Prefix of sparkdash's own caches in a container."""
_OWN_VARIABLES = ("LLAMA_ARG_LOAD_MODE=none", "LLAMA_ARG_NO_MMAP=1")
"""Variables that sparkdash itself sets for a llama-server, and that an import therefore drops."""


def import_podman_line(text: str, name: str | None = None) -> Imported:
    """Import each container command of a script, and each engine command outside of a container.

    Raises:
        ProfileError: the script has none, or one that cannot be understood.
    """
    notes = ImportNotes()
    profiles = [one for words in parse_commands(text, notes) if (one := import_command(words, notes, name))]
    if not profiles:
        raise import_refused(
            "No command in the input starts an engine that sparkdash knows.",
            "Looked for podman run, docker run, vllm serve, sglang.launch_server, llama-server and trtllm-serve.",
        )
    return notes.imported("command line", *number_duplicates(profiles))


def number_duplicates(profiles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Number duplicate names; an alias stays with the first profile that has it."""
    seen: set[str] = set()
    for profile in profiles:
        base, count = profile["profile"], 1
        while profile["profile"] in seen:
            count += 1
            profile["profile"] = f"{base}-{count}"
        seen.add(profile["profile"])
    for profile in profiles:
        free = [alias for alias in dict.fromkeys(profile.get("serves", [])) if alias not in seen]
        seen.update(free)
        if free:
            profile["serves"] = free
        else:
            profile.pop("serves", None)
    return profiles


def import_command(words: list[str], notes: ImportNotes, name: str | None = None) -> dict[str, Any] | None:
    """Import one command; None when it starts no engine."""
    program = PurePosixPath(words[0]).name
    if program in RUNTIMES and words[1:2] == ["container"]:
        words = [words[0], *words[2:]]
    if program in RUNTIMES:
        return _container(words[2:], notes, name) if words[1:2] == ["run"] else None
    if found := engine_line.recognise_engine(words, ""):
        notes.note(words[0], "runs without a container here; add `image`")
        return assemble_profile(engine_line.read_engine_line(*found, notes), {}, name or "", notes)
    return None


def assemble_profile(engine: EnginePart, container: dict[str, Any], name: str, notes: ImportNotes) -> dict[str, Any]:
    """Assemble a profile file's mapping, in the order that people read."""
    own = _own_name(engine, name)
    serves = aliases(engine.names, own)
    for lost in dict.fromkeys(name for name in engine.names if name not in (*serves, own, "auto")):
        notes.unknown(lost, "is no name that clients could use, left out")
    mounts = [mount for mount in container.pop("mounts", []) if not _implied(mount, engine.models)]
    if engine.kind != "llamacpp" and container.get("shm_size") == DEFAULT_SHM:
        del container["shm_size"]
    made = {
        "profile": own,
        "engine": engine.kind,
        "image": container.pop("image", None),
        "command": engine.command,
        "models": engine.models,
        "serves": serves,
        "args": engine.args,
        "env": container.pop("env", {}),
        "mounts": mounts,
    } | container
    return {key: value for key, value in made.items() if value not in (None, [], {})}


def _own_name(engine: EnginePart, name: str) -> str:
    """Return the given name, else the first served name, else the model's file or repository name."""
    model = engine.models["target"]
    basename = PurePosixPath((model.get("path") or model.get("hf") or "").partition(":")[0]).name
    return next(filter(None, map(profile_name, (name, *engine.names[:1], basename.removesuffix(".gguf")))), "imported")


def _implied(mount: dict[str, Any], models: dict[str, dict[str, str]]) -> bool:
    """Whether a mount is a model's read-only mount at its own path, which sparkdash makes by itself."""
    paths = [ref["path"] for ref in models.values() if "path" in ref]
    folders = {str(PurePosixPath(path).parent) if path.endswith(".gguf") else path for path in paths}
    return mount["source"] == mount["target"] and mount.get("read_only", True) and mount["source"] in folders


def _container(words: list[str], notes: ImportNotes, name: str | None) -> dict[str, Any] | None:
    options, index = split_options(words, notes)
    if index >= len(words):
        notes.unknown("podman run", "a run command without an image, left out")
        return None
    container = _fields(options, notes) | {"image": words[index]}
    hint = container.pop("name", "")
    inside = [*container.pop("entrypoint", []), *words[index + 1 :]]
    found = engine_line.recognise_engine(_unwrap(inside, notes), words[index])
    if found is None:
        notes.note(
            words[index],
            f"its command starts no engine that is known here ({' '.join(inside[:3]) or 'none given'}); left out",
        )
        return None
    aliased = container.pop("names", [])
    engine = engine_line.read_engine_line(*found, notes)
    engine.names += aliased
    return assemble_profile(engine, container, name or hint.removeprefix("sparkdash-"), notes)


def _unwrap(words: list[str], notes: ImportNotes) -> list[str]:
    """Return the engine command inside `bash -c "…"`, when it has exactly one."""
    if len(words) < 3 or PurePosixPath(words[0]).name not in ("bash", "sh") or not re.fullmatch(r"-[a-z]*c", words[1]):
        return words
    inner = [one for one in parse_commands(words[2], notes) if engine_line.recognise_engine(one, "")]
    if len(inner) != 1:
        return words
    notes.rewritten(f"{words[0]} {words[1]}", "the engine is started without a shell around it")
    return inner[0]


def _fields(options: list[tuple[str, str | None]], notes: ImportNotes) -> dict[str, Any]:
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
    made["entrypoint"] = [value]


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
