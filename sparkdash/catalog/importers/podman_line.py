"""Profiles from `podman run` and `docker run` command lines, and scripts of them.

Owns: the runtime's flags. Must not know: engines' flags, files. Nothing is run, and only the text is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any

from sparkdash.catalog.importers import engine_line, podman_fields
from sparkdash.catalog.importers.any_server import known_container, read_any_server
from sparkdash.catalog.importers.engine_line import EnginePart
from sparkdash.catalog.importers.podman_flags import split_options
from sparkdash.catalog.importers.report import Imported, ImportNotes, import_refused
from sparkdash.catalog.importers.shell_commands import Command, parse_commands
from sparkdash.catalog.importers.values import aliases, profile_name

RUNTIMES = ("podman", "docker", "nerdctl")
DEFAULT_SHM = "8g"
"""Default shared memory that sparkdash gives engines other than llama.cpp."""

_HARMLESS = frozenset(
    [
        "set",
        "echo",
        "printf",
        "cd",
        "mkdir",
        "sleep",
        "true",
        "false",
        "exit",
        "return",
        "trap",
        "shift",
        "fi",
        "done",
        "esac",
        "}",
        "wait",
        "read",
        "test",
        "[",
        "[[",
        ":",
        "shopt",
        "ulimit",
        "umask",
        "clear",
        "date",
        "continue",
        "break",
    ]
)
"""Commands whose absence changes nothing for the engine."""
_LIKELY = re.compile(r"vllm|sglang|llama|trtllm|podman|docker|nerdctl")


def import_podman_line(text: str, name: str | None = None) -> Imported:
    """Import each container command of a script, and each engine command outside of a container.

    Raises:
        ProfileError: the script has none, or one that cannot be understood.
    """
    notes = ImportNotes()
    commands = parse_commands(text, notes)
    profiles = import_commands(commands, notes, name)
    if not profiles and (others := import_commands(commands, other := ImportNotes(), name, any_server=True)):
        return other.imported("command line", *number_duplicates(others))
    if not profiles:
        skipped = " The text of a here-document (<<) is not read." if "<<" in text else ""
        raise import_refused(
            f"No command in the input starts an engine that sparkdash knows.{nearest(_lines(commands))}{skipped}",
            "Looked for podman run, docker run, vllm serve, sglang.launch_server, llama-server and trtllm-serve.",
        )
    return notes.imported("command line", *number_duplicates(profiles))


def import_commands(
    commands: list[Command], notes: ImportNotes, name: str | None = None, *, any_server: bool = False
) -> list[dict[str, Any]]:
    """Import every command that starts an engine; the other ones that do something are named in `notes`.

    `any_server`: see `import_command`.
    """
    found = [(command, import_command(command, notes, name, any_server=any_server)) for command in commands]
    if any(made for _, made in found):
        for command in (command for command, made in found if made is None):
            _note_step(command.words, notes)
    return [made for _, made in found if made]


def _note_step(words: list[str], notes: ImportNotes) -> None:
    if words[0] in (".", "source"):
        notes.dropped(" ".join(words), "another script, which is not read; write what it sets")
    elif PurePosixPath(words[0]).name not in _HARMLESS:
        notes.dropped(" ".join(words), "a step beside the engine, which sparkdash does not run; put it into the image")


def _lines(commands: list[Command]) -> list[str]:
    return [" ".join(one.words) for one in commands]


def nearest(lines: Iterable[str]) -> str:
    """Name the line that looks most like an engine's, in a sentence; "" without any."""
    likely = [" ".join(line.split()) for line in lines if _LIKELY.search(line)]
    return f" The nearest was: {likely[0][:120]}" if likely else ""


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


def import_command(
    command: Command, notes: ImportNotes, name: str | None = None, *, any_server: bool = False
) -> dict[str, Any] | None:
    """Import one command; None when it starts no engine.

    `any_server`: whether a container of an unknown image counts that publishes a port.
    """
    words = command.words
    program = PurePosixPath(words[0]).name
    if program in RUNTIMES and words[1:2] == ["container"]:
        words = [words[0], *words[2:]]
    if program in RUNTIMES:
        is_run = words[1:2] in (["run"], ["create"])
        return _container(words[2:], notes, name, command.env, any_server=any_server) if is_run else None
    if found := engine_line.recognise_engine(words, ""):
        notes.note(words[0], "runs without a container here; add `image`")
        made: dict[str, Any] = {"env": {}, "env_from": []}
        for variable, value in command.env.items():
            podman_fields.add_variable(f"{variable}={value}", made, notes)
        return assemble_profile(engine_line.read_engine_line(*found, notes), made, name or "", notes)
    inner = _unwrap(words, notes)
    return None if inner.words is words else import_command(Command(inner.words, command.env | inner.env), notes, name)


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
        "nodes": engine.nodes if engine.nodes > 1 else None,
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


def _container(
    words: list[str], notes: ImportNotes, name: str | None, exported: Mapping[str, str], *, any_server: bool
) -> dict[str, Any] | None:
    options, index = split_options(words, notes)
    if index >= len(words):
        notes.unknown("podman run", "a run command without an image, left out")
        return None
    container = podman_fields.container_fields(options, notes) | {"image": words[index]}
    podman_fields.fill_from_script(container, exported, notes)
    hint = container.pop("name", "")
    inside = _unwrap([*container.get("entrypoint", []), *words[index + 1 :]], notes)
    found = engine_line.recognise_engine(inside.words, words[index])
    if found is None and (any_server or known_container(words[index], inside.words)):
        own = name or hint.removeprefix("sparkdash-")
        return read_any_server(words[index + 1 :], container, options, notes, own)
    container.pop("entrypoint", None)
    if found is None:
        notes.note(
            words[index],
            f"its command starts no engine that is known here ({' '.join(inside.words[:3]) or 'none given'}); left out",
        )
        return None
    for variable, value in inside.env.items():
        podman_fields.add_variable(f"{variable}={value}", container, notes)
    aliased = container.pop("names", [])
    engine = engine_line.read_engine_line(*found, notes)
    engine.names += aliased
    return assemble_profile(engine, container, name or hint.removeprefix("sparkdash-"), notes)


def _unwrap(words: list[str], notes: ImportNotes) -> Command:
    """Return the engine command inside `bash -c "…"`, when it has exactly one; its other steps are named."""
    flags = list(takewhile(lambda word: word.startswith("-"), words[1:]))
    is_shell = bool(words) and PurePosixPath(words[0]).name in ("bash", "sh", "dash", "zsh")
    script = words[1 + len(flags) :][:1]
    if not (is_shell and script and any(re.fullmatch(r"-[a-z]*c[a-z]*", flag) for flag in flags)):
        return Command(words, {})
    inner = only_engine(parse_commands(script[0], notes), notes)
    if inner is None:
        return Command(words, {})
    notes.rewritten(" ".join([words[0], *flags]), "the engine is started without a shell around it")
    return inner


def only_engine(commands: list[Command], notes: ImportNotes) -> Command | None:
    """Return the one command that starts an engine, and name the other steps; None without one, or with several."""
    inner = [one for one in commands if engine_line.recognise_engine(one.words, "")]
    if len(inner) != 1:
        return None
    for other in commands:
        if other is not inner[0]:
            _note_step(other.words, notes)
    return inner[0]
