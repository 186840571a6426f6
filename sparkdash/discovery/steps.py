"""Steps of a setup, and what is suggested for each; light, as the command line's help names them.

Pure.
"""

from __future__ import annotations

from enum import StrEnum


class Step(StrEnum):
    """Steps of a setup, in their order."""

    BOX = "box"
    ATTACH = "attach"
    IMPORT = "import"
    SOURCES = "sources"
    MODEL = "model"
    SERVICE = "service"
    CLIENTS = "clients"
    FIRST_TOKEN = "first-token"  # noqa: S105 - a token of text


class Outlook(StrEnum):
    """Suggestion of setup for a step."""

    DONE = "done"
    PROPOSED = "proposed"
    OFFERED = "offered"
    """Possible, and left out unless the owner asks for it."""
    NOTHING = "nothing"
