"""Page: a setup as people read it and as programs do. Pure. No key is ever in it: a word stands in its place."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from sparkdash.connect.gateway_target import MASK, GatewayTarget
from sparkdash.connect.merge import merged
from sparkdash.connect.recipe import ConfigFile, Language, Recipe, Setup

_REMARK = {Language.PYTHON: "#", Language.JAVASCRIPT: "//"}
"""Comment marker of each language."""


def masked(text: str, place: GatewayTarget) -> str:
    """The text without the key."""
    return text.replace(place.key, MASK) if place.key else text


def page(recipe: Recipe, setup: Setup, place: GatewayTarget) -> str:
    """Everything, in the order in which it is done."""
    lines = [f"{recipe.title}: {place.model} at {place.root}", ""]
    for file in setup.files:
        lines += [f"# {file.path or 'its configuration file'}", _whole(file)]
    after = rest(setup, place)
    return masked("\n".join(lines) + ("\n" if setup.files and after else "") + after, place)


def _whole(file: ConfigFile) -> str:
    return merged("", file)


def rest(setup: Setup, place: GatewayTarget) -> str:
    """What is left to do once the files are there."""
    return masked("".join(f"{line}\n" for line in _rest(setup, place)), place)


def _rest(setup: Setup, place: GatewayTarget) -> Iterator[str]:
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
    if place.known_context is None:
        yield f"* The profile does not say its context: {place.context} tokens are assumed."


def facts(recipe: Recipe, setup: Setup, place: GatewayTarget) -> dict[str, Any]:
    """The same for programs."""
    files = [{"path": file.path, "format": file.format, "text": masked(_whole(file), place)} for file in setup.files]
    return {
        "client": recipe.name,
        "title": recipe.title,
        "protocol": recipe.protocol,
        "root": place.root,
        "model": place.model,
        "context": place.known_context,
        "files": files,
        "env": {name: masked(value, place) for name, value in setup.env.items()},
        "snippets": [{"language": each.language, "text": masked(each.text, place)} for each in setup.snippets],
        "steps": [masked(step, place) for step in setup.steps],
        "run": setup.run,
        "notes": list(setup.notes),
        "source": recipe.source,
    }
