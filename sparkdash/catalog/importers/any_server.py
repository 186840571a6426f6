"""Profiles with `engine: generic` from containers whose engine is none of those with a dialect. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from sparkdash.catalog.importers.values import ImportNotes, model_ref, profile_name, typed_value
from sparkdash.domain.profile import ServerKind
from sparkdash.engines.generic.known_servers import KNOWN, KnownServer
from sparkdash.redaction import MASK, is_secret_flag, masked_command

_IMAGES = (
    (ServerKind.ATLAS, r"avarok/(?:atlas|avarok)-gb10"),
    (ServerKind.OLLAMA, r"(?:^|/)ollama/ollama"),
    (ServerKind.TABBYAPI, r"/tabbyapi"),
    (ServerKind.NIM, r"nvcr\.io/nim/"),
    (ServerKind.TEI, r"/text-embeddings-inference"),
    (ServerKind.INFINITY, r"michaelf34/infinity"),
    (ServerKind.SPEACHES, r"speaches-ai/speaches"),
    (ServerKind.KOKORO, r"/kokoro-fastapi"),
)
"""Known servers by their published images."""
_PROGRAMS = {"dflash_server": ServerKind.LUCEBOX, "sd-server": ServerKind.SD_CPP}
"""Known servers without a published image, by their programs."""
_SIGNALS = ("SIGINT", "SIGQUIT")
_BOUND = ("127.0.0.1", "0.0.0.0", "localhost", "::")  # noqa: S104 - what imported commands say

Options = list[tuple[str, str | None]]


def known_container(image: str, words: Sequence[str]) -> ServerKind | None:
    """Return the known server of a container, by its image's name or by the first word of its command."""
    by_image = (kind for kind, pattern in _IMAGES if re.search(pattern, image))
    return next(by_image, None) or (_PROGRAMS.get(PurePosixPath(words[0]).name) if words else None)


def _published_port(options: Options) -> int | None:
    for key, value in options:
        inner = (value or "").partition("/")[0].rpartition(":")[2]
        if key in ("publish", "p") and inner.isdecimal():
            return int(inner)
    return None


def read_any_server(
    words: list[str], container: dict[str, Any], options: Options, notes: ImportNotes, name: str
) -> dict[str, Any] | None:
    """Make the profile of a container; None where it is no known server and publishes no port."""
    image, entrypoint, port = container["image"], container.pop("entrypoint", []), _published_port(options)
    container.pop("names", None)
    words = _without_secrets(words, notes)
    kind = known_container(image, [*entrypoint, *words])
    if kind is None and port is None:
        return None
    made = _known(KNOWN[kind], [*entrypoint, *words], notes) if kind else _unknown(words, entrypoint, port, notes)
    env = container.pop("env", {})
    if kind:
        env = _own_variables(env, KNOWN[kind], notes)
    signal = next((value for key, value in options if key == "stop-signal" and value in _SIGNALS), None)
    made["server"] |= {"stop_signal": signal} if signal else {}
    model = (made.get("models", {}).get("target") or {}).values()
    places = [PurePosixPath(place).name for place in (*model, image.partition("@")[0].rpartition(":")[0] or image)]
    own = next(filter(None, map(profile_name, (name, *places))), "imported")
    whole = {"profile": own, "engine": "generic", "image": image} | made | {"env": env} | container
    whole.pop("name", None)
    notes.note(own, "memory is not declared: without it no start is refused for want of room")
    return {key: value for key, value in whole.items() if value not in (None, [], {})}


def _without_secrets(words: list[str], notes: ImportNotes) -> list[str]:
    found: list[str] = []
    for word, shown in zip(words, masked_command(words), strict=True):
        if word == shown:
            found.append(word)
            continue
        flag = found.pop() if shown == MASK and found and is_secret_flag(found[-1]) else shown
        notes.dropped(flag, "a secret must not be in a profile; the gateway asks for keys")
    return found


def _own_variables(env: dict[str, str], known: KnownServer, notes: ImportNotes) -> dict[str, str]:
    """Return the variables but those that sparkdash sets itself: the address, and values that are the same."""
    told = [key for key in env if "{port}" in known.env.get(key, "")]
    for key in told:
        notes.dropped(f"env.{key}", "sparkdash sets it by itself")
    return {key: value for key, value in env.items() if key not in told and value != known.env.get(key)}


def _unknown(words: list[str], entrypoint: list[str], port: int | None, notes: ImportNotes) -> dict[str, Any]:
    notes.note("server.routes", "a server that answers chats is assumed; say what it serves (docs/servers.md)")
    server: dict[str, Any] = {"port": port} | ({"keep_entrypoint": True} if words and not entrypoint else {})
    return {"command": [*entrypoint, *words], "server": server}


def _known(known: KnownServer, words: list[str], notes: ImportNotes) -> dict[str, Any]:
    notes.note(known.title, f"described after {known.source}; {known.tried}")
    flags, rest = _flags(words)
    rest = [word for word in rest if word not in known.command]
    models: dict[str, Any] = {}
    for flag, own in known.args.items():
        value = flags.pop(flag, None)
        if own == "{target}" and value is not None:
            models["target"] = model_ref(str(value))
        elif value is not None and str(value) not in (str(own), *_BOUND):
            notes.dropped(f"--{flag}", "sparkdash sets it by itself")
    if "{target}" in known.command and rest:
        models["target"] = model_ref(rest.pop(0))
    for word in rest:
        notes.unknown(word)
    assert known.spec.kind is not None  # noqa: S101 - every known server has its kind
    return {"models": models, "args": flags, "server": {"kind": known.spec.kind.value}}


def _flags(words: list[str]) -> tuple[dict[str, Any], list[str]]:
    flags: dict[str, Any] = {}
    rest: list[str] = []
    index = 0
    while index < len(words):
        word, following = words[index], words[index + 1 : index + 2]
        key, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            rest.append(word)
        elif equals:
            flags[key] = typed_value(value)
        elif following and not following[0].startswith("--"):
            flags[key], index = typed_value(following[0]), index + 1
        else:
            flags[key] = True
        index += 1
    return flags, rest
