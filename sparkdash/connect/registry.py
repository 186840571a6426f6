"""All clients by name."""

from __future__ import annotations

from difflib import get_close_matches

from sparkdash.connect.recipe import Recipe
from sparkdash.connect.recipes import (
    aider,
    claude_code,
    cline,
    codex,
    continue_dev,
    copilot_cli,
    jetbrains,
    libraries,
    librechat,
    llm,
    open_webui,
    opencode,
    pi,
    qwen_code,
    vscode,
    zed,
)
from sparkdash.errors import AdmissionError

_FOUND = (
    aider.RECIPE,
    claude_code.RECIPE,
    cline.RECIPE,
    codex.RECIPE,
    continue_dev.RECIPE,
    copilot_cli.RECIPE,
    jetbrains.RECIPE,
    librechat.RECIPE,
    llm.RECIPE,
    open_webui.RECIPE,
    opencode.RECIPE,
    pi.RECIPE,
    qwen_code.RECIPE,
    vscode.RECIPE,
    zed.RECIPE,
    *libraries.RECIPES,
)
RECIPES: dict[str, Recipe] = {found.name: found for found in sorted(_FOUND, key=lambda found: found.name)}


def find_recipe(name: str) -> Recipe:
    """Find the client of that name.

    Raises:
        AdmissionError: code `client_not_found`, with the nearest names and how to list all.
    """
    if name in RECIPES:
        return RECIPES[name]
    close = get_close_matches(name, RECIPES, 3, 0.4)
    guess = f"Did you mean {' or '.join(close)}? " if close else ""
    raise AdmissionError(
        f"There is no recipe for {name!r}.",
        code="client_not_found",
        hint=f"{guess}`sparkdash connect --list` shows all {len(RECIPES)}.",
    )
