"""Profiles from quadlets, the units of podman-systemd.unit(5). Pure."""

import re
from collections.abc import Iterator

from sparkdash.catalog.importers import podman_line
from sparkdash.catalog.importers.shell import Command
from sparkdash.catalog.importers.values import Imported, ImportNotes, import_refused

_UNIT = re.compile(r"^\[Container\]\s*$", re.MULTILINE)
_OF_SYSTEMD = "belongs to systemd; sparkdash starts and stops the engine itself"
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'', re.DOTALL)
_WORD = re.compile(rf"(?:{_QUOTED.pattern}|\S)+", re.DOTALL)
_OPTIONS = {
    "ContainerName": "--name", "AddDevice": "--device", "ShmSize": "--shm-size", "Volume": "--volume",
    "Mount": "--mount", "Tmpfs": "--tmpfs", "Network": "--network", "PublishPort": "--publish",
    "EnvironmentFile": "--env-file", "Secret": "--secret", "User": "--user", "Label": "--label",
    "SecurityLabelDisable": "--security-opt", "Ulimit": "--ulimit", "Pull": "--pull",
}  # fmt: skip
_ONCE = ("Image", "Exec", "Entrypoint")
_SPECIFIERS = {"%h": "$HOME", "%%": "%", "$$": "$"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "s": " "}


def is_unit(text: str) -> bool:
    return bool(_UNIT.search(text))


def import_unit(text: str, name: str | None = None) -> Imported:
    """Import a unit as one profile. Raises ProfileError: it names no image, or starts no known engine."""
    notes = ImportNotes()
    options: list[str] = []
    given: dict[str, str] = {}
    about = ""
    for section, key, value in _entries(text):
        if (section, key) == ("Unit", "Description"):
            about = _text(value)
        elif section != "Container":
            _note_of_systemd(section, key, value, notes)
        elif key in _ONCE:
            if key in given:
                before = " ".join(_words(given[key]))
                notes.dropped(f"Container.{key}", f"is given more than once; the last one holds, not {before}")
            given[key] = value
        else:
            options += _options(key, value, notes)
    if not (image := _text(given.get("Image", ""))):
        raise import_refused("The unit has no `Image=` in [Container].")
    if "Entrypoint" in given:
        options += ["--entrypoint", *_words(given["Entrypoint"])]
    words = ["podman", "run", *options, image, *_words(given.get("Exec", ""))]
    made = podman_line.import_command(Command(words, {}), notes, name)
    if made is None:
        raise import_refused("The unit's command starts no engine that sparkdash knows.")
    if about not in ("", made["profile"]):
        made = {"profile": made["profile"], "about": about} | made
    return notes.imported("quadlet", made)


def _note_of_systemd(section: str, key: str, value: str, notes: ImportNotes) -> None:
    if (section, key) == ("Service", "Environment"):
        notes.note(f"{section}.{key}", "is systemd's environment, not the engine's")
    elif (section, key, value) != ("Service", "TimeoutStartSec", "1800"):  # which an export of sparkdash has
        notes.dropped(f"{section}.{key}", _OF_SYSTEMD)


def _options(key: str, value: str, notes: ImportNotes) -> list[str]:
    if key == "Environment":
        return [part for word in _words(value) for part in ("--env", word)]
    if key == "PodmanArgs":
        return _words(value)
    if key in _OPTIONS:
        return [f"{_OPTIONS[key]}={_text(value)}"]
    notes.unknown(f"Container.{key}")
    return []


def _entries(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield section, key and value; a line that ends in a backslash goes on in the next that is no comment."""
    section = ""
    lines = (line for line in text.splitlines() if line.strip()[:1] not in ("#", ";"))
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        stripped = line.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            section = stripped[1:-1]
        elif stripped:
            key, _, value = stripped.partition("=")
            yield section, key.strip(), value.strip()


def _words(value: str) -> list[str]:
    """Split as podman's generator does: quotes anywhere in a word, C escapes inside of them, % and $ doubled."""

    def unquoted(hit: re.Match[str]) -> str:
        return re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), hit[1] or hit[2] or "", flags=re.DOTALL)

    return [_text(_QUOTED.sub(unquoted, hit[0])) for hit in _WORD.finditer(value)]


def _text(value: str) -> str:
    return re.sub(r"%[h%]|\$\$", lambda hit: _SPECIFIERS[hit[0]], value)
