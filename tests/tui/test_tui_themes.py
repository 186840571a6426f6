"""Themes: contrast, colours for every kind of vision, and what is kept from one start to the next."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.color import Color

from sparkdash.tui import theme
from sparkdash.tui.app import SparkdashApp
from sparkdash.tui.choices import KeptChoices
from sparkdash.tui.text import Style

COLOURED = [name for name in theme.NAMES if name != "plain"]
MACHADO = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
"""Matrices of full colour blindness on linear RGB (Machado, Oliveira, Fernandes 2009)."""


def linear(colour: Color) -> tuple[float, ...]:
    parts = (part / 255 for part in colour.get_truecolor())
    return tuple(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)


def luminance(colour: Color) -> float:
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


def contrast(one: Color, other: Color) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: tuple[float, ...]) -> tuple[float, float, float]:
    rows = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    white = (0.95047, 1.0, 1.08883)
    xyz = [sum(a * b for a, b in zip(row, rgb, strict=True)) / w for row, w in zip(rows, white, strict=True)]
    x, y, z = (each ** (1 / 3) if each > 0.008856 else 7.787 * max(each, 0) + 16 / 116 for each in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("name", COLOURED)
@pytest.mark.parametrize("lit", [False, True])
def test_text_can_be_read_on_every_row(name: str, lit: bool) -> None:
    """4.5 : 1 for text, also under the cursor; 3 : 1 for charts."""
    looks = theme.styles_for(theme.NAMES[name])
    for style in (Style.STRONG, Style.PLAIN, Style.DIM, Style.GOOD, Style.WARN, Style.BAD):
        look = looks[style, lit]
        assert contrast(look.color, look.bgcolor) >= 4.5, style
    if not lit:
        look = looks[Style.TRACE, lit]
        assert contrast(look.color, look.bgcolor) >= 3.0


@pytest.mark.parametrize("name", ["safe", "safe-light"])
@pytest.mark.parametrize("kind", MACHADO)
def test_states_differ_with_every_kind_of_colour_vision(name: str, kind: str) -> None:
    """By at least 27 (CIE76) between good, warn and bad."""
    looks = theme.styles_for(theme.NAMES[name])

    def seen(style: Style) -> tuple[float, float, float]:
        rgb = linear(looks[style, False].color)
        return lab(tuple(sum(a * b for a, b in zip(row, rgb, strict=True)) for row in MACHADO[kind]))

    for one, other in ((Style.GOOD, Style.WARN), (Style.GOOD, Style.BAD), (Style.WARN, Style.BAD)):
        distance = sum((a - b) ** 2 for a, b in zip(seen(one), seen(other), strict=True)) ** 0.5
        assert distance >= 27, (one, other, distance)


@pytest.mark.parametrize(("env", "kept", "chosen"), [
    ({}, None, theme.DARK), ({}, "safe", theme.SAFE), ({}, "no such theme", theme.DARK),
    ({"COLORFGBG": "0;15"}, None, theme.LIGHT), ({"SPARKDASH_THEME": "contrast"}, "light", theme.CONTRAST),
    ({"NO_COLOR": "1", "SPARKDASH_THEME": "light"}, "light", theme.PLAIN),
])  # fmt: skip
def test_the_first_theme_is_the_most_certain_wish(env: dict[str, str], kept: str | None, chosen: str) -> None:
    """NO_COLOR, then the variable, then what was kept, then the terminal's background."""
    assert theme.first_theme(env, kept) == chosen


async def test_a_theme_is_kept_for_the_next_start(daemon: Any, box: Any, tmp_path: Path) -> None:
    kept = KeptChoices(tmp_path / "state" / "dashboard.json")
    app = SparkdashApp(lambda: daemon, daemon.address, kept=kept)
    daemon.tell(box.snapshot())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        for _ in range(3):
            await pilot.press("T")
        assert app.theme == theme.SAFE
    assert SparkdashApp(lambda: daemon, daemon.address, kept=kept).theme == theme.SAFE
    assert json.loads((tmp_path / "state" / "dashboard.json").read_text()) == {"theme": "safe"}


def test_choices_that_cannot_be_read_are_none(tmp_path: Path) -> None:
    """Neither a broken file nor a folder in its place ends the dashboard."""
    path = tmp_path / "dashboard.json"
    path.write_text("{")
    assert KeptChoices(path).theme is None
    path.write_text("[]")
    assert KeptChoices(path).theme is None
    blocked = KeptChoices(path / "below" / "a file")
    assert blocked.theme is None
    blocked.keep("theme", "dark")
    assert blocked.theme is None


def test_without_colour_the_cursors_row_is_reversed_and_charts_are_dim_beside_the_large_figure() -> None:
    looks = theme.styles_for("plain")
    assert all(looks[style, True].reverse and not looks[style, True].dim for style in Style)
    assert looks[Style.STRONG, False].bold
    assert all(looks[style, False].dim for style in (Style.TRACE, Style.FILL, Style.FAINT))
