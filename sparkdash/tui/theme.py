"""Themes: dark, light, and one without colour.

Owns: the style of each Ink. Must not know: what is drawn with it.
Contrast: dimmed text keeps at least 4.5 : 1 against the background in both themes (WCAG AA); frames are decoration.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.theme import Theme

from sparkdash.tui.ink import Ink

DARK = "sparkdash-dark"
LIGHT = "sparkdash-light"
PLAIN = "ansi-dark"
"""Textual's theme in the terminal's own colours: what Textual draws itself (the palette) then fits the plain inks."""

_COLOURS: dict[str, dict[str, str]] = {
    DARK: {
        "background": "#0f1317", "lit": "#22303a",
        "plain": "#cbd3da", "strong": "#f3f6f8", "dim": "#85919c", "faint": "#3b454e",
        "good": "#86c06c", "trace": "#557f47", "warn": "#e2ab45", "bad": "#ec6a63",
    },
    LIGHT: {
        "background": "#fbfbf8", "lit": "#e2eadc",
        "plain": "#2c333a", "strong": "#0b0f13", "dim": "#66707a", "faint": "#c6ccd0",
        "good": "#367a1c", "trace": "#8fb67d", "warn": "#945c00", "bad": "#b3261e",
    },
}  # fmt: skip

_BOLD = frozenset({Ink.STRONG, Ink.BAD})

_WITHOUT_COLOUR: dict[Ink, Style] = {
    Ink.PLAIN: Style(),
    Ink.STRONG: Style(bold=True),
    Ink.DIM: Style(dim=True),
    Ink.FAINT: Style(dim=True),
    Ink.GOOD: Style(),
    Ink.TRACE: Style(),
    Ink.WARN: Style(bold=True),
    Ink.BAD: Style(bold=True, underline=True),
}

Looks = Mapping[tuple[Ink, bool], Style]
"""Style of each ink, without and with the cursor."""


def _coloured(colours: dict[str, str]) -> dict[tuple[Ink, bool], Style]:
    looks: dict[tuple[Ink, bool], Style] = {}
    for ink in Ink:
        look = Style(color=colours[ink], bgcolor=colours["background"], bold=ink in _BOLD or None)
        looks[ink, False] = look
        looks[ink, True] = look + Style(bgcolor=colours["lit"])
    return looks


def _plain() -> dict[tuple[Ink, bool], Style]:
    looks = {(ink, False): look for ink, look in _WITHOUT_COLOUR.items()}
    return looks | {(ink, True): look + Style(reverse=True) for ink, look in _WITHOUT_COLOUR.items()}


_LOOKS: dict[str, Looks] = {**{name: _coloured(colours) for name, colours in _COLOURS.items()}, PLAIN: _plain()}


def styles_for(theme: str) -> Looks:
    """Return the styles of a theme; a theme of Textual's gets the ones without colour."""
    return _LOOKS.get(theme, _LOOKS[PLAIN])


def _theme(name: str) -> Theme:
    colours = _COLOURS[name]
    return Theme(
        name=name,
        primary=colours["good"],
        accent=colours["good"],
        success=colours["good"],
        warning=colours["warn"],
        error=colours["bad"],
        foreground=colours["plain"],
        background=colours["background"],
        surface=colours["background"],
        panel=colours["lit"],
        dark=name == DARK,
        variables={"block-cursor-background": colours["lit"], "block-cursor-foreground": colours["strong"]},
    )


def textual_themes() -> list[Theme]:
    """Return the themes to register; the one without colour is Textual's own."""
    return [_theme(DARK), _theme(LIGHT)]
