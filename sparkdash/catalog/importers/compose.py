"""Profiles from a compose file (docker compose, podman-compose), one for each service that starts an engine.

Owns: the keys of a service. Must not know: runtimes' and engines' flags. Variables of the environment are never looked
up. Keys as in the Compose specification.
Pure.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Any

from sparkdash.catalog.importers import podman_line
from sparkdash.catalog.importers.shell import Command, ShellReader, WordReader
from sparkdash.catalog.importers.values import Imported, ImportNotes, import_refused, parse_bounded_yaml, profile_name

_COMPOSE = re.compile(r"^services:", re.MULTILINE)
_PLAIN = {
    "container_name": "--name",
    "shm_size": "--shm-size",
    "runtime": "--runtime",
    "user": "--user",
    "working_dir": "--workdir",
    "ipc": "--ipc",
    "network_mode": "--network",
    "restart": "--restart",
}
_LISTED = {"devices": "--device", "tmpfs": "--tmpfs", "ports": "--publish", "env_file": "--env-file"}
_WHY = {
    "build": "an import builds no image; `build` in the profile can say how it is built",
    "healthcheck": "sparkdash asks the engine itself",
    "depends_on": "sparkdash starts one engine for one profile",
    "logging": "sparkdash sets it",
    "labels": "sparkdash sets its own labels",
    "networks": "sparkdash always uses the host's network, on loopback",
    "ulimits": "a profile has no limits; the runtime's own hold",
    "privileged": "no engine needs it for the GPU",
    "stop_grace_period": "`stop_grace_s` in config.toml holds for every engine",
    "pull_policy": "sparkdash pulls as a step of its own",
    "profiles": "it belongs to compose",
    "security_opt": "a profile changes no security settings",
    "expose": "sparkdash chooses the port; clients use the gateway",
    "stdin_open": "engines read no input",
    "tty": "engines read no input",
    "init": "every engine ends on SIGTERM by itself",
}


def is_compose(text: str) -> bool:
    return _COMPOSE.search(text) is not None


def import_compose(text: str, name: str | None = None, folder: str | None = None) -> Imported:
    """Import every service that starts a known engine. Relative volumes lie below `folder`. Raises ProfileError."""
    data, notes = parse_bounded_yaml(text), ImportNotes()
    services = data.get("services")
    if not isinstance(services, dict) or not services:
        raise import_refused("The file has no `services`.")
    made = [one for key, body in services.items() if (one := _service(str(key), body, folder, notes))]
    if not made:
        lines = (_shown(str(key), body) for key, body in services.items() if isinstance(body, dict))
        raise import_refused(
            f"No service in the file starts an engine that sparkdash knows.{podman_line.nearest(lines)}"
        )
    if name and len(made) == 1:
        made[0]["profile"] = name
    return notes.imported("compose file", *podman_line.number_duplicates(made))


def _shown(key: str, body: dict[str, Any]) -> str:
    command = body.get("command") or ""
    words = " ".join(map(str, command)) if isinstance(command, list) else str(command)
    return f"{key}: {body.get('image', '')} {words}"


def _service(key: str, body: Any, folder: str | None, notes: ImportNotes) -> dict[str, Any] | None:
    if not isinstance(body, dict):
        notes.unknown(f"services.{key}")
        return None
    image = body.get("image")
    if not isinstance(image, str):
        notes.unknown(f"services.{key}", "names no image, left out")
        return None

    def filled(value: Any) -> str:
        return WordReader(str(value).replace("$$", "\0"), {}, notes, literal=True).text_of_word().replace("\0", "$")

    options = [word for one, value in body.items() for word in _options(key, str(one), value, filled, notes)]
    entry = _words(body.get("entrypoint"), filled)
    words = ["podman", "run", *options, *(["--entrypoint", entry[0]] if entry else [])]
    command = Command([*words, filled(image), *entry[1:], *_words(body.get("command"), filled)], {})
    made = podman_line.import_command(command, notes)
    for mount in (made or {}).get("mounts", ()):
        if folder and mount["source"].startswith("."):
            mount["source"] = posixpath.normpath(posixpath.join(folder, mount["source"]))
    if made is not None and "container_name" not in body:
        made["profile"] = profile_name(key) or made["profile"]
    return made


def _options(service: str, key: str, value: Any, filled: Callable[[Any], str], notes: ImportNotes) -> Iterator[str]:
    if key in _PLAIN and isinstance(value, str | int):
        yield from (_PLAIN[key], filled(value))
    elif key in _LISTED:
        for one in value if isinstance(value, list) else [value]:
            yield from (_LISTED[key], filled(one.get("path", "") if isinstance(one, dict) else one))
    elif key == "environment":
        for one in _environment(value):
            yield from ("--env", filled(one))
    elif key == "volumes":
        for one in value if isinstance(value, list) else ():
            yield from _volume(one, filled)
    elif key == "gpus" or (key == "deploy" and "nvidia" in str(value)):
        yield "--gpus=all"
    elif key in _WHY:
        notes.dropped(f"services.{service}.{key}", _WHY[key])
    elif key not in ("image", "command", "entrypoint"):
        notes.unknown(f"services.{service}.{key}")


def _environment(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [str(name) if text is None else f"{name}={_scalar(text)}" for name, text in value.items()]
    return [str(one) for one in value] if isinstance(value, list) else []


def _scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _volume(one: Any, filled: Callable[[Any], str]) -> list[str]:
    if not isinstance(one, dict):
        return ["--volume", filled(one)]
    if one.get("type") == "tmpfs":
        return ["--tmpfs", filled(one.get("target", ""))]
    parts = [f"type={one.get('type', 'bind')}", f"source={filled(one.get('source', ''))}"]
    parts += [f"target={filled(one.get('target', ''))}", *(["readonly"] if one.get("read_only") else [])]
    return ["--mount", ",".join(parts)]


def _words(value: Any, filled: Callable[[Any], str]) -> list[str]:
    """Return a command's words: a list as it is, a text split as a shell does."""
    if isinstance(value, list):
        return [filled(word) for word in value]
    if not isinstance(value, str):
        return []
    quiet = ImportNotes()
    return [word for words in ShellReader(filled(value).replace("\n", " "), {}, quiet).commands() for word in words]
