"""Profiles from a compose file (Compose specification), one for each service that starts an engine. Pure."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sparkdash.catalog.importers import podman_line
from sparkdash.catalog.importers.shell import Command, ShellReader, WordReader, without_comments
from sparkdash.catalog.importers.values import Imported, ImportNotes, import_refused, parse_bounded_yaml, profile_name
from sparkdash.errors import ProfileError

_PLAIN = {
    "container_name": "--name", "shm_size": "--shm-size", "runtime": "--runtime", "user": "--user",
    "working_dir": "--workdir", "ipc": "--ipc", "network_mode": "--network", "restart": "--restart",
}  # fmt: skip
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
    "platform": "every box is a GB10, and images are looked at for their processor",
    "mem_limit": "the memory guard watches the whole box, which the GPU shares",
    "memswap_limit": "the memory guard watches the whole box, which the GPU shares",
    "init": "every engine ends on SIGTERM by itself",
}

_OF_GPU = {"resources", "reservations", "devices", "driver", "count", "capabilities", "device_ids", "options"}


def import_compose(text: str, name: str | None = None, folder: str | None = None) -> Imported:
    """Import every service that starts a known engine. Relative volumes lie below `folder`. Raises ProfileError."""
    data, notes = parse_bounded_yaml(text), ImportNotes()
    services = data.get("services")
    if not isinstance(services, dict) or not services:
        raise import_refused("The file has no `services`.")
    _note_other_parts(data, notes)
    made = _profiles(services, folder, notes)
    if not made:
        lines = (_shown(str(key), body) for key, body in services.items() if isinstance(body, dict))
        like = podman_line.nearest(lines)
        raise import_refused(f"No service in the file starts an engine that sparkdash knows.{like}")
    if name and len(made) == 1:
        podman_line.rename(made[0], name)
    return notes.imported("compose file", *podman_line.number_duplicates(made))


def _note_other_parts(data: dict[str, Any], notes: ImportNotes) -> None:
    for other in (str(key) for key in data if key not in ("services", "version", "name")):
        if not other.startswith("x-"):  # parts that services repeat by their anchors
            notes.dropped(other, "belongs to compose; only services become profiles")


def _profiles(services: dict[str, Any], folder: str | None, notes: ImportNotes) -> list[dict[str, Any]]:
    """Make a profile of each service that starts an engine. Raises ProfileError: the first, where none is made."""
    made, failed = [], None
    for key, body in services.items():
        try:
            made += [one] if (one := _service(str(key), _extended(services, body, notes), folder, notes)) else []
        except ProfileError as error:
            failed = failed or error
            notes.unknown(f"services.{key}", f"{error.message} Left out.")
    if failed and not made:
        raise failed
    return made


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
    entry = _words(body.get("entrypoint"), filled, notes)
    words = ["podman", "run", *options, *(["--entrypoint", entry[0]] if entry else [])]
    command = Command([*words, filled(image), *entry[1:], *_words(body.get("command"), filled, notes)], {})
    own = None if "container_name" in body else profile_name(key)
    made = podman_line.import_command(command, notes, own or None)
    if made is None:
        notes.unknown(f"services.{key}", "starts no engine that is known here, left out")
    for mount in (made or {}).get("mounts", ()):
        if folder and mount["source"].startswith("."):
            mount["source"] = posixpath.normpath(posixpath.join(folder, mount["source"]))
    return made


def _extended(services: dict[str, Any], body: Any, notes: ImportNotes, depth: int = 0) -> Any:
    """Lay a service over the one that it `extends`: mappings key by key, lists one behind the other."""
    if not isinstance(body, dict) or "extends" not in body:
        return body
    given = body["extends"]
    name = str(given.get("service") if isinstance(given, dict) else given)
    own = {key: value for key, value in body.items() if key != "extends"}
    is_elsewhere = (isinstance(given, dict) and "file" in given) or not isinstance(services.get(name), dict)
    if is_elsewhere or depth > len(services):
        notes.unknown(f"extends: {name}", "is in another file, or nowhere; write what it says into this one")
        return own
    for key in (str(key) for key in given if key != "service") if isinstance(given, dict) else ():
        notes.unknown(f"extends.{key}")
    base = _extended(services, services[name], notes, depth + 1)
    return base | {key: _joined(key, base.get(key), value) for key, value in own.items()}


def _joined(key: str, base: Any, own: Any) -> Any:
    if key == "environment":
        return [*_environment(base), *_environment(own)]
    if isinstance(base, dict) and isinstance(own, dict):
        return base | own
    is_replaced = key in ("command", "entrypoint")
    return [*base, *own] if isinstance(base, list) and isinstance(own, list) and not is_replaced else own


def _options(service: str, key: str, value: Any, filled: Callable[[Any], str], notes: ImportNotes) -> Iterator[str]:
    if key in _PLAIN and isinstance(value, str | int):
        yield from (_PLAIN[key], filled(value))
    elif key in _LISTED:
        yield from _repeated(_LISTED[key], map(filled, _paths(value)))
    elif key == "environment":
        yield from _repeated("--env", map(filled, _environment(value)))
    elif key == "volumes":
        yield from _volumes(value, filled, notes)
    elif key == "gpus":
        yield "--gpus=all"
    elif key == "deploy" and "nvidia" in str(value):
        yield "--gpus=all"
        _note_others(service, value, notes)
    else:
        _note_left_out(service, key, notes)


def _note_left_out(service: str, key: str, notes: ImportNotes) -> None:
    if key in _WHY:
        notes.dropped(f"services.{service}.{key}", _WHY[key])
    elif key not in ("image", "command", "entrypoint"):
        notes.unknown(f"services.{service}.{key}")


def _paths(value: Any) -> list[Any]:
    listed = value if isinstance(value, list) else [value]
    return [one.get("path", "") if isinstance(one, dict) else one for one in listed]


def _note_others(service: str, deploy: Any, notes: ImportNotes) -> None:
    if others := sorted(set(_keys(deploy)) - _OF_GPU):
        notes.dropped(f"services.{service}.deploy ({', '.join(others)})", "only the GPU of it has a key here")


def _repeated(flag: str, values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from (flag, value)


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from map(str, value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from _keys(part)


def _environment(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [
            str(name) if text is None else f"{name}={str(text).lower() if isinstance(text, bool) else text}"
            for name, text in value.items()
        ]
    return [str(one) for one in value] if isinstance(value, list) else []


def _volumes(value: Any, filled: Callable[[Any], str], notes: ImportNotes) -> Iterator[str]:
    for one in value if isinstance(value, list) else ():
        yield from _volume(one, filled, notes)


def _volume(one: Any, filled: Callable[[Any], str], notes: ImportNotes) -> list[str]:
    if not isinstance(one, dict):
        return ["--volume", filled(one)]
    bind = one.get("bind")
    others = [key for key in one if key not in ("type", "source", "target", "read_only", "bind")]
    others += [f"bind.{key}" for key in bind if key != "create_host_path"] if isinstance(bind, dict) else []
    for key in others:
        notes.unknown(f"volumes.{key}")
    if one.get("type") == "tmpfs":
        return ["--tmpfs", filled(one.get("target", ""))]
    parts = [f"type={one.get('type', 'bind')}", f"source={filled(one.get('source', ''))}"]
    parts += [f"target={filled(one.get('target', ''))}", *(["readonly"] if one.get("read_only") else [])]
    return ["--mount", ",".join(parts)]


def _words(value: Any, filled: Callable[[Any], str], notes: ImportNotes) -> list[str]:
    """Return a command's words: a list as it is, a text split as a shell does."""
    if isinstance(value, list):
        return [filled(word) for word in value]
    if not isinstance(value, str):
        return []
    quiet = ImportNotes()  # what its variables are was noted when they were filled in
    text = re.sub(r"\\\s+(?=-)|\\?\n", " ", without_comments(filled(value)))
    reader = ShellReader(text, {}, quiet, is_joined=True)
    words = [word for words in reader.commands() for word in words]
    for comment in (one for one in quiet.found if one.kind == "dropped"):
        notes.dropped(comment.what, comment.why)
    return words
