"""Set-up of a client: shown to people and programs, and written to its files. A word replaces the key when shown."""

import difflib
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparkdash.connect.merge import merge_file
from sparkdash.connect.recipe import MASK, ConfigFile, GatewayTarget, Language, Launch, Recipe, Setup
from sparkdash.errors import HostError, writing
from sparkdash.paths import LARGE, read_small_text, replace_file, runtime_dir


def mask_key(text: str, target: GatewayTarget) -> str:
    return text.replace(target.key, MASK) if target.key else text


def setup_page(recipe: Recipe, setup: Setup, target: GatewayTarget) -> str:
    lines = [f"{recipe.title}: {target.model} at {target.root}", ""]
    for file in setup.files:
        lines += [f"# {file.path or 'its configuration file'}", merge_file("", file)]
    after = remaining_steps(setup, target)
    return mask_key("\n".join(lines) + ("\n" if setup.files and after else "") + after, target)


def remaining_steps(setup: Setup, target: GatewayTarget) -> str:
    return mask_key("".join(f"{line}\n" for line in _rest(setup, target)), target)


def _rest(setup: Setup, target: GatewayTarget) -> Iterator[str]:
    yield from (f"export {name}={shlex.quote(value)}" for name, value in setup.env.items())
    if setup.env:
        yield ""
    for snippet in setup.snippets:
        yield f"{'#' if snippet.language is Language.PYTHON else '//'} {snippet.language}"
        yield snippet.text
    yield from (f"{number}. {step}" for number, step in enumerate(setup.steps, 1))
    if setup.steps:
        yield ""
    if setup.run:
        yield f"Then: {setup.run}"
        yield ""
    yield from (f"* {note}" for note in setup.notes)
    if target.known_context is None:
        yield f"* The profile does not state its context; {target.context} tokens are assumed."


def setup_facts(recipe: Recipe, setup: Setup, target: GatewayTarget) -> dict[str, Any]:
    files = [
        {"path": file.path, "format": file.format, "text": mask_key(merge_file("", file), target)}
        for file in setup.files
    ]
    return {
        "client": recipe.name,
        "title": recipe.title,
        "protocol": recipe.protocol,
        "root": target.root,
        "model": target.model,
        "context": target.known_context,
        "files": files,
        "env": {name: mask_key(value, target) for name, value in setup.env.items()},
        "snippets": [{"language": each.language, "text": mask_key(each.text, target)} for each in setup.snippets],
        "steps": [mask_key(step, target) for step in setup.steps],
        "run": setup.run,
        "notes": list(setup.notes),
        "source": recipe.source,
    }


@dataclass(frozen=True, slots=True)
class FileChange:
    """Old and new content of one file."""

    path: Path
    old: str | None
    new: str

    @property
    def needed(self) -> bool:
        return self.old != self.new

    def diff(self) -> str:
        before, after = (self.old or "").splitlines(keepends=True), self.new.splitlines(keepends=True)
        lines = difflib.unified_diff(before, after, str(self.path), str(self.path))
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def plan_change(file: ConfigFile, path: Path) -> FileChange:
    try:
        old = read_small_text(path, LARGE)
    except FileNotFoundError:
        old = None
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(f"{path} cannot be read: {error}.", code="file_unreadable") from None
    return FileChange(path, old, merge_file(old or "", replace(file, path=str(path))))


def prepare_launch(client: str, setup: Setup) -> Launch | None:
    """Fill in {file} and {folder}: a copy of the client's file, with the gateway in it, in sparkdash's own folder."""
    start = setup.launch
    if start is None or "{f" not in f"{start.argv} {start.env}":
        return start
    merged = plan_change(setup.files[0], Path(str(setup.files[0].path)).expanduser())
    copy = runtime_dir() / "launch" / client / merged.path.name
    apply_change(FileChange(copy, None, merged.new))

    def filled(word: str) -> str:
        return word.replace("{file}", str(copy)).replace("{folder}", str(copy.parent))

    return Launch(tuple(map(filled, start.argv)), {name: filled(value) for name, value in start.env.items()})


def apply_change(change: FileChange) -> Path | None:
    """Write the change, through symbolic links; return the old content's backup. Raises HostError."""
    path = change.path.resolve()
    with writing(path, "file_not_written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        backup = _kept(path, change.old)
        replace_file(path, change.new.encode(), mode=path.stat().st_mode & 0o777 if change.old is not None else 0o600)
    return backup


def _kept(path: Path, old: str | None) -> Path | None:
    if old is None:
        return None
    stamp = time.strftime("%Y%m%d-%H%M%S")
    backup = path.with_name(f"{path.name}.before-sparkdash-{stamp}")
    number = 1
    while backup.exists():
        number += 1
        backup = path.with_name(f"{path.name}.before-sparkdash-{stamp}-{number}")
    replace_file(backup, old.encode(), mode=path.stat().st_mode & 0o777)
    return backup
