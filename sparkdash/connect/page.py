"""Set-up of a client as a page for people and as JSON for programs. A word replaces the key.

Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from sparkdash.connect.gateway_target import MASK, GatewayTarget
from sparkdash.connect.merge import merge_file
from sparkdash.connect.recipe import ConfigFile, Language, Recipe, Setup

_REMARK = {Language.PYTHON: "#", Language.JAVASCRIPT: "//"}
"""Comment marker of each language."""


def mask_key(text: str, target: GatewayTarget) -> str:
    """Replace the key in a text by a word."""
    return text.replace(target.key, MASK) if target.key else text


def setup_page(recipe: Recipe, setup: Setup, target: GatewayTarget) -> str:
    """Render the whole set-up in the order of its steps."""
    lines = [f"{recipe.title}: {target.model} at {target.root}", ""]
    for file in setup.files:
        lines += [f"# {file.path or 'its configuration file'}", _whole(file)]
    after = remaining_steps(setup, target)
    return mask_key("\n".join(lines) + ("\n" if setup.files and after else "") + after, target)


def _whole(file: ConfigFile) -> str:
    return merge_file("", file)


def remaining_steps(setup: Setup, target: GatewayTarget) -> str:
    """Render the steps that remain once the files are written."""
    return mask_key("".join(f"{line}\n" for line in _rest(setup, target)), target)


def _rest(setup: Setup, target: GatewayTarget) -> Iterator[str]:
    yield from (f"export {name}={shlex.quote(value)}" for name, value in setup.env.items())
    if setup.env:
        yield ""
    for snippet in setup.snippets:
        yield f"{_REMARK[snippet.language]} {snippet.language}"
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
    """Return the set-up for programs."""
    files = [{"path": file.path, "format": file.format, "text": mask_key(_whole(file), target)} for file in setup.files]
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
