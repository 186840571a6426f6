"""Themes: dark, light, high contrast, two for every kind of colour vision, and one without colour."""

from collections.abc import Mapping
from functools import cache

from rich.style import Style as RichStyle
from textual.theme import Theme

from sparkdash.tui.text import Style

DARK = "sparkdash-dark"
LIGHT = "sparkdash-light"
CONTRAST = "sparkdash-contrast"
SAFE = "sparkdash-safe"
SAFE_LIGHT = "sparkdash-safe-light"
PLAIN = "ansi-dark"
"""Textual's theme in the terminal's own colours: what Textual draws itself (the palette) then fits the plain styles."""

NAMES: dict[str, str] = {
    "dark": DARK, "light": LIGHT, "contrast": CONTRAST, "safe": SAFE, "safe-light": SAFE_LIGHT, "plain": PLAIN,
}  # fmt: skip
"""Themes by the name that the user types and reads, in the order of the key."""

_COLOURS: dict[str, dict[str, str]] = {
    DARK: {
        "background": "#0f1317", "lit": "#22303a",
        "plain": "#cbd3da", "strong": "#f3f6f8", "dim": "#8f9ba6", "faint": "#3b454e",
        "good": "#86c06c", "trace": "#557f47", "fill": "#6d7983", "warn": "#e2ab45", "bad": "#f0766f",
    },
    LIGHT: {
        "background": "#fbfbf8", "lit": "#e2eadc",
        "plain": "#2c333a", "strong": "#0b0f13", "dim": "#5c666f", "faint": "#b9c0c5",
        "good": "#2f6f18", "trace": "#6f9c5c", "fill": "#87919a", "warn": "#8a5600", "bad": "#b3261e",
    },
    CONTRAST: {
        "background": "#000000", "lit": "#1f3b57",
        "plain": "#ffffff", "strong": "#ffffff", "dim": "#c8c8c8", "faint": "#8a8a8a",
        "good": "#7dff5a", "trace": "#4fbf35", "fill": "#9c9c9c", "warn": "#ffd000", "bad": "#ff8f87",
    },
    SAFE: {
        "background": "#0f1317", "lit": "#22303a",
        "plain": "#cbd3da", "strong": "#f3f6f8", "dim": "#8f9ba6", "faint": "#3b454e",
        "good": "#56b4e9", "trace": "#3a7ca3", "fill": "#6d7983", "warn": "#f0e442", "bad": "#ff7f50",
    },
    SAFE_LIGHT: {
        "background": "#fbfbf8", "lit": "#e2eadc",
        "plain": "#2c333a", "strong": "#0b0f13", "dim": "#5c666f", "faint": "#b9c0c5",
        "good": "#005b94", "trace": "#5a93b8", "fill": "#87919a", "warn": "#756600", "bad": "#c2185b",
    },
}  # fmt: skip

_WITHOUT_COLOUR: dict[Style, RichStyle] = {
    Style.PLAIN: RichStyle(),
    Style.STRONG: RichStyle(bold=True),
    Style.DIM: RichStyle(dim=True),
    Style.FAINT: RichStyle(dim=True),
    Style.GOOD: RichStyle(),
    Style.TRACE: RichStyle(dim=True),  # full blocks would outshine the large figure
    Style.FILL: RichStyle(dim=True),
    Style.WARN: RichStyle(bold=True),
    Style.BAD: RichStyle(bold=True, underline=True),
    Style.HIT: RichStyle(bold=True, underline=True),
}

Looks = Mapping[tuple[Style, bool], RichStyle]
"""Look of each style, without and with the cursor."""


def _coloured(colours: dict[str, str]) -> dict[tuple[Style, bool], RichStyle]:
    looks: dict[tuple[Style, bool], RichStyle] = {}
    for style in Style:
        if style is Style.HIT:
            continue
        bold = style in (Style.STRONG, Style.BAD) or None
        look = RichStyle(color=colours[style], bgcolor=colours["background"], bold=bold)
        looks[style, False] = look
        looks[style, True] = look + RichStyle(bgcolor=colours["lit"])
    looks[Style.HIT, False] = RichStyle(color=colours["warn"], bgcolor=colours["lit"], bold=True)
    looks[Style.HIT, True] = RichStyle(color=colours["background"], bgcolor=colours["warn"], bold=True)
    return looks


@cache
def styles_for(theme: str) -> Looks:
    if theme in _COLOURS:
        return _coloured(_COLOURS[theme])
    looks = {(style, False): look for style, look in _WITHOUT_COLOUR.items()}
    lit = RichStyle(reverse=True, dim=False)  # dim and reversed is light grey on white
    return looks | {(style, True): look + lit for style, look in _WITHOUT_COLOUR.items()}


def textual_themes() -> list[Theme]:
    """Return the themes to register; the one without colour is Textual's own."""
    return [
        Theme(
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
            dark=name not in (LIGHT, SAFE_LIGHT),
            variables={"block-cursor-background": colours["lit"], "block-cursor-foreground": colours["strong"]},
        )
        for name, colours in _COLOURS.items()
    ]


def next_name(theme: str) -> str:
    names = list(NAMES)
    at = list(NAMES.values()).index(theme) if theme in NAMES.values() else -1
    return names[(at + 1) % len(names)]


def first_theme(env: Mapping[str, str], kept: str | None) -> str:
    """Choose the theme of a start: NO_COLOR (https://no-color.org), SPARKDASH_THEME, the kept name, the terminal's
    background as far as COLORFGBG tells it.
    """
    if env.get("NO_COLOR"):
        return PLAIN
    for name in (env.get("SPARKDASH_THEME"), kept):
        if name in NAMES:
            return NAMES[name]
    return LIGHT if env.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15") else DARK
