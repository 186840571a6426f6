"""Engines that a script starts in a container that runs already: `docker exec`, and eugr's `launch-cluster.sh exec`.

Owns: turning such a line, with the `run` line that made the container, into one `run` line of the engine.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from sparkdash.catalog.importers.podman_flags import split_options
from sparkdash.catalog.importers.report import ImportNotes
from sparkdash.catalog.importers.shell_commands import Command

RUNTIMES = ("podman", "docker", "nerdctl")
_LAUNCHER = "launch-cluster.sh"
_LAUNCHER_IMAGE = "vllm-node"
"""Image that the launcher starts unless told otherwise."""
_LAUNCHER_BARE = {
    "-d",
    "--solo",
    "--check-config",
    "--no-ray",
    "--no-cache-dirs",
    "--non-privileged",
    "--keep-entrypoint",
}
_KEPT = ("env", "env-file")
"""Flags of `exec` that a `run` has too."""

StartsEngine = Callable[[list[str]], bool]


def as_runs(commands: list[Command], starts_engine: StartsEngine, notes: ImportNotes) -> list[Command]:
    """Replace each command that starts an engine in a running container; the others stay as they are."""
    runs = {name: command for command in commands if (name := _run_name(command.words))}
    made, used = [], []
    for command in commands:
        words = _run_form(command.words)
        if words[1:2] == ["exec"] and PurePosixPath(words[0]).name in RUNTIMES:
            holder, engine = _exec(words[2:])
            if starts_engine(engine):
                used.append(runs.get(holder))
                command = _of_holder(command, runs.get(holder), words, engine, notes)
        elif PurePosixPath(words[0]).name == _LAUNCHER and "exec" in words:
            engine = words[words.index("exec") + 1 :]
            if starts_engine(engine):
                command = Command([*_launched(words[1 : words.index("exec")], notes), *engine], command.env)
        made.append(command)
    return [command for command in made if not any(command is one for one in used)]


def _run_form(words: list[str]) -> list[str]:
    """Take the word `container` out of `docker container exec`."""
    return [words[0], *words[2:]] if words[1:2] == ["container"] else words


def _run_name(words: list[str]) -> str | None:
    """Return the container's name that a `run` or `create` gives; None for other commands."""
    words = _run_form(words)
    if PurePosixPath(words[0]).name not in RUNTIMES or words[1:2] not in (["run"], ["create"]):
        return None
    options, _ = split_options(words[2:], ImportNotes())
    return next((value for key, value in options if key == "name"), None)


def _exec(words: list[str]) -> tuple[str, list[str]]:
    """Return the container of an `exec`, and the words that it runs there."""
    _, index = split_options(words, ImportNotes())
    return (words[index] if index < len(words) else ""), words[index + 1 :]


def _of_holder(
    command: Command, holder: Command | None, words: list[str], engine: list[str], notes: ImportNotes
) -> Command:
    """Write an `exec` as the `run` of its container with the engine's words, or as the engine alone."""
    options, index = split_options(words[2:], ImportNotes())
    given = [f"--{key}={value}" for key, value in options if key in _KEPT and value is not None]
    if holder is None:
        name = words[2 + index]
        notes.note(
            " ".join(words[:2]), f"starts the engine in the container {name}, whose image the line does not name"
        )
        env = dict(one.removeprefix("--env=").partition("=")[::2] for one in given if one.startswith("--env="))
        return Command(engine, command.env | env)
    notes.rewritten(" ".join(words[:2]), "the engine is the container's own command")
    base = _run_form(holder.words)
    _, image = split_options(base[2:], ImportNotes())
    return Command([*base[: 2 + image], *given, base[2 + image], *engine], holder.env | command.env)


def _launched(words: list[str], notes: ImportNotes) -> list[str]:
    """Return the `run` that the launcher's flags stand for, up to the image."""
    image, given, index = _LAUNCHER_IMAGE, [], 0
    while index < len(words):
        key, value = words[index], words[index + 1] if index + 1 < len(words) else ""
        index += 1 if key in _LAUNCHER_BARE else 2
        if key == "-t":
            image = value
        elif key == "-e":
            given.append(f"--env={value}")
        elif key == "--apply-mod":
            notes.dropped(f"--apply-mod {value}", "a patch applied at start; bake it into the image (`build`)")
        elif key not in ("--solo", "-d"):
            notes.dropped(f"{key} {value}" if key not in _LAUNCHER_BARE else key, "a flag of the launcher alone")
    notes.rewritten(_LAUNCHER, f"as a container of its image {image}")
    return ["docker", "run", "--gpus=all", *given, image]
