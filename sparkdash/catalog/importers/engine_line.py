"""Engine part of a profile, from an engine's command line: its flags, model, drafter and served names."""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from sparkdash.catalog.importers.values import (
    ImportNotes,
    dotted_value,
    import_refused,
    in_home,
    model_ref,
    typed_value,
)
from sparkdash.domain.node import RANK_ARGS
from sparkdash.engines.adapter import CommandLine, EngineAdapter
from sparkdash.engines.registry import all_adapters
from sparkdash.redaction import is_secret_variable, masked

_PYTHON = re.compile(r"python[\d.]*")
_VARIABLE = re.compile(r"\$(?:[@*\w]+|\{[^{}]*\})")
"""Word that is one variable, whose text nobody knows."""
_VERSION = re.compile(
    r"[-_](?=[0-9a-f]*\d)[0-9a-f]{7,40}$|[-_]?v?b?\d[\w.]*$|[-_](?:latest|main|master|nightly|cuda\d*|vulkan|rocm|cpu)$"
)
"""Version, commit or build at the end of a program's name, as in llama-server-b4567."""


@dataclass(slots=True)
class EnginePart:
    """Engine part of a profile; `names` are the served names."""

    engine: EngineAdapter
    syntax: CommandLine
    command: list[str] = field(default_factory=list)
    models: dict[str, dict[str, str]] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    nodes: int = 1

    @property
    def kind(self) -> str:
        return self.engine.kind.value

    def own_name(self, container: str) -> str:
        """Return the container's name, or "" where it is one rank's and clients know the engine by another."""
        return "" if self.nodes > 1 and self.names else container

    @property
    def nests(self) -> bool:
        """Whether `--a.b 1` is the engine's short way to a JSON object."""
        return self.engine.flag_source is not None and self.engine.flag_source.syntax.nests


def recognise_engine(words: list[str], image: str) -> tuple[EnginePart, list[str]] | None:
    """Return the engine that `words` start, with the words after its program; None without one."""
    name = _VERSION.sub("", PurePosixPath(words[0]).name) if words else ""
    if _PYTHON.fullmatch(name) and words[1:3] == ["-u", "-m"]:  # unbuffered, as sparkdash's containers are anyway
        words = [words[0], *words[2:]]
    if _PYTHON.fullmatch(name) and words[1:2] == ["-m"]:
        image = ""  # the module is the program, whatever the image starts by itself
    for engine in all_adapters():
        if engine.command_line is not None and (found := engine.recognise(words, name, image)):
            command, rest = found
            return EnginePart(engine, engine.command_line, list(command)), list(rest)
    return None


def read_engine_line(engine: EnginePart, words: list[str], notes: ImportNotes, env: dict[str, str]) -> EnginePart:
    """Fill in `engine` from the words after its program. Raises ProfileError: they name no model.

    Variables that stand for flags are taken out of `env`; a flag of the command precedes them.
    """
    positional, flags = _split(engine, [*_variables(engine, env, notes), *words], notes)
    _model_last(engine, positional, flags)
    _place(engine, flags, notes)
    _speculation(engine, notes)
    if not _models(engine, positional, notes):
        said = f": {' '.join(words)[:120]}" if words else "."
        presets = engine.args.get("models-preset")
        elsewhere = f" (its models are in {presets}: import that file)" if presets else ""
        raise import_refused(
            f"The {engine.kind} command names no model{said}{elsewhere}",
            "Add the model to the command, or write the profile by hand.",
        )
    for extra in positional[1:]:
        notes.unknown(extra, "a word that belongs to no flag, left out")
    return engine


def _variables(engine: EnginePart, env: dict[str, str], notes: ImportNotes) -> Iterator[str]:
    for name in list(env):
        flag = engine.engine.flag_of_variable(name)
        if flag is None:
            continue
        notes.rewritten(name, f"as the flag --{flag}, which it stands for")
        value = env.pop(name)
        if not engine.engine.is_bare_flag(flag):
            yield from (f"--{flag}", value)
        elif value.lower() in ("on", "enabled", "true", "1"):
            yield f"--{flag}"


def _split(engine: EnginePart, words: list[str], notes: ImportNotes) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Split into the words that belong to no flag, and each flag with its values."""
    positional: list[str] = []
    flags: list[tuple[str, list[str]]] = []
    named = not engine.syntax.is_model_positional or any(_names_model(engine, word) for word in words)
    rest = deque(words)
    while rest:
        word = rest.popleft()
        if word == "--" or (_VARIABLE.fullmatch(word) and (named or positional)):
            notes.dropped(word, "stands for words that are not in the text")
        elif not _is_flag(word):
            positional += [word] if word else []
        else:
            name, equals, value = _name_and_value(engine, word)
            key = _key(engine, name, notes)
            is_bare = engine.engine.is_bare_flag(key) and not (named or positional)
            values = [value] if equals else [] if is_bare else _take_values(engine, key, rest)
            flags += [(key, values)] if key else []
    return positional, flags


def _take_values(engine: EnginePart, key: str, rest: deque[str]) -> list[str]:
    values: list[str] = []
    while rest and _is_value(engine, key, rest[0], len(values)):
        values.append(rest.popleft())
    return values


def _is_flag(word: str) -> bool:
    return word.startswith("-") and re.match(r"--?[A-Za-z]", word) is not None


def _is_value(engine: EnginePart, key: str, word: str, values: int) -> bool:
    """Whether a word after a flag and `values` of its values is a value. A variable may stand for further flags."""
    if not _VARIABLE.fullmatch(word):
        return not _is_flag(word)
    is_list = key == engine.syntax.names or key in engine.engine.lists.several
    return word != "$@" and not engine.engine.is_bare_flag(key) and (not values or is_list)


def _names_model(engine: EnginePart, word: str) -> bool:
    return word.startswith("--") and word[2:].partition("=")[0].replace("_", "-") in engine.syntax.model


def _name_and_value(engine: EnginePart, word: str) -> tuple[str, str, str]:
    """Split `--flag=value`, and the short form of a flag that has its value attached."""
    for short, name in engine.syntax.attached.items():
        if hit := re.fullmatch(rf"{short}=?(\d)", word):
            return name, "=", hit[1]
    return word.partition("=")


def _key(engine: EnginePart, name: str, notes: ImportNotes) -> str:
    """Return the flag's long name without dashes, with hyphens where the engine takes either; "" when unknown."""
    key = name.lstrip("-")
    if engine.engine.flag_source is None or not engine.engine.flag_source.syntax.is_literal:
        head, dot, tail = key.partition(".")
        key = head.replace("_", "-") + dot + tail
    short, dot, path = key.partition(".")
    if engine.nests and dot and not name.startswith("--") and (known := engine.engine.long_name(short)):
        return f"{known}.{path}"
    if (known := engine.engine.long_name(key)) and (not name.startswith("--") or engine.syntax.resolves_long):
        return known
    if not name.startswith("--") and len(key) > 1:
        notes.unknown(name, "a short flag that is not known, left out with its value; write the long one")
        return ""
    return key


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _model_last(engine: EnginePart, positional: list[str], flags: list[tuple[str, list[str]]]) -> None:
    """Find a model after a flag's value, as in `--max-model-len 4096 owner/name`, if none was named."""
    if positional or any(key in engine.syntax.model for key, _ in flags):
        return
    for key, values in flags:
        if len(values) == 2 and key not in engine.engine.lists.several:
            positional.append(values.pop())
            return


def _place(engine: EnginePart, flags: list[tuple[str, list[str]]], notes: ImportNotes) -> None:
    for key, values in flags:
        flag = f"--{key}"
        if key == engine.syntax.names:
            engine.names += [name for value in values for name in value.split(",")]
        elif key.startswith("-") or not key:
            notes.unknown(flag)
        elif reason := _drop_reason(engine.syntax, key, values):
            notes.dropped(flag if len(values) < 2 else f"{flag} {masked(' '.join(values))}", reason)
        else:
            _store(engine, key, values, notes)
        if key == "nnodes" and values and values[0].isdecimal():
            engine.nodes = int(values[0])


def _drop_reason(syntax: CommandLine, key: str, values: list[str]) -> str | None:
    if key in ("host", "port"):
        return "sparkdash sets the address itself"
    if key in RANK_ARGS:
        return "sparkdash sets it for each node of a profile for several"
    if values and is_secret_variable(key.replace("-", "_")):
        return "a secret must not be in a profile; the gateway asks for keys"
    if (key, *values) in syntax.ours:
        return "sparkdash sets it by itself"
    return None


def _store(engine: EnginePart, key: str, values: list[str], notes: ImportNotes) -> None:
    lists, flag = engine.engine.lists, f"--{key}"
    if key in lists.repeated and values:
        engine.args[key] = [*_as_list(engine.args.get(key, [])), *map(typed_value, values)]
    elif len(values) > 1 and key in lists.several:
        engine.args[key] = list(map(typed_value, values))
    elif len(values) > 1:
        what = f"{flag} {masked(' '.join(values))}"
        notes.unknown(what, f"has {len(values)} values, and is not known to take a list; left out")
    elif engine.nests and "." in key:
        _dotted(engine.args, key, values, notes)
    else:
        if key in engine.args:
            notes.note(flag, "is given more than once; the last one holds")
        engine.args[key] = typed_value(values[0]) if values else True


def _dotted(args: dict[str, Any], key: str, values: list[str], notes: ImportNotes) -> None:
    """Store `--a.b.c v` as {a: {b: {c: v}}}."""
    head, *path = key.split(".")
    if not all(path) or len(path) > 8 or not isinstance(args.get(head, {}), dict):
        notes.unknown(f"--{key}")
        return
    notes.rewritten(f"--{key}", f"as a key of the mapping {head}")
    node = args.setdefault(head, {})
    for part in path[:-1]:
        if not isinstance(node.get(part), dict):
            node[part] = {}
        node = node[part]
    node[path[-1]] = dotted_value(values[0]) if values else True


def _speculation(engine: EnginePart, notes: ImportNotes) -> None:
    """Turn the speculation flags of old recipes into the one JSON value that the engine takes."""
    merged = engine.syntax.old_speculation
    old = {key: engine.args.pop(key) for key in merged if key in engine.args}
    if old:
        config = engine.args.get("speculative-config")
        given = {merged[key]: value for key, value in old.items()}
        engine.args["speculative-config"] = given | (config if isinstance(config, dict) else {})
        why = f"as speculative-config, which is what {engine.engine.title} takes"
        notes.rewritten(", ".join(f"--{key}" for key in old), why)


def _models(engine: EnginePart, positional: list[str], notes: ImportNotes) -> bool:
    """Move the models from the words and args to the profile's models; return whether there is one."""
    given = [engine.args.pop(key) for key in engine.syntax.model if key in engine.args]
    texts = [str(value) for value in (*positional[:1], *given) if value not in (True, "")]
    if not texts:
        return False
    engine.models["target"] = _ref(texts[0], notes)
    if engine.args.get("revision") not in (None, True) and "hf" in engine.models["target"]:
        engine.models["target"]["revision"] = str(engine.args.pop("revision"))
    _drafter(engine, texts[0], notes)
    return True


def _drafter(engine: EnginePart, target: str, notes: ImportNotes) -> None:
    """Move the drafting model from the args to the profile's models; a placeholder stays."""
    key, holder = engine.syntax.drafter, engine.args
    if isinstance(config := engine.args.get("speculative-config"), dict):
        key, holder = "model", config
    drafter = holder.get(key)
    if not isinstance(drafter, str) or not drafter:
        return
    if drafter != target:
        engine.models["drafter"] = _ref(drafter, notes)
    holder[key] = "{target}" if drafter == target else "{drafter}"


def _ref(text: str, notes: ImportNotes) -> dict[str, str]:
    text = in_home(text)
    if "$" in text:
        notes.note(text, "a model's place with a variable in it; write the real one")
    return model_ref(text)
