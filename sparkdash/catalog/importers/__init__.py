"""Importers: other tools' formats become profiles.

Owns: telling the formats apart. Text goes in, mappings and a report come out. Nothing is run, no variable of the
environment is read, no file is opened. Must not know: the origin of the text, the destination of the profile.
"""

from __future__ import annotations

import re

from sparkdash.catalog.importers import compose, llama_swap, podman_line, quadlet, sparkrun
from sparkdash.catalog.importers.values import Imported, Remark, import_refused

MAX_CHARACTERS = 500_000
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
_LLAMA_SWAP = re.compile(r"^models:", re.MULTILINE)
_RECIPE = re.compile(r"^(sparkrun_version|recipe_version|runtime|container|defaults)\s*:", re.MULTILINE)

__all__ = ["Imported", "Remark", "import_profiles"]


def import_profiles(text: str, name: str | None = None, folder: str | None = None) -> Imported:
    """Import one text: a script or command line, a recipe, a llama-swap configuration, a compose file or a quadlet.

    `name` is for a single profile. `folder` holds the text's file, for what it names beside itself.

    Raises:
        ProfileError: `import_refused`, with what is wrong.
    """
    _check(text)
    text = text.removeprefix("\ufeff")
    if text.startswith("#!"):
        return podman_line.import_podman_line(text, name)
    if _LLAMA_SWAP.search(text):
        return llama_swap.import_llama_swap(text, name)
    if compose.is_compose(text):
        return compose.import_compose(text, name, folder)
    if quadlet.is_quadlet(text):
        return quadlet.import_quadlet(text, name)
    if _RECIPE.search(text):
        return sparkrun.import_sparkrun(text, name)
    return podman_line.import_podman_line(text, name)


def _check(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise import_refused(f"The input is longer than {MAX_CHARACTERS} characters.")
    if _CONTROL.search(text):
        raise import_refused("The input holds control characters: it is no text.")
    if not text:
        raise import_refused(
            "The input is empty.", "Give a command line, a script, a recipe or a llama-swap configuration."
        )
