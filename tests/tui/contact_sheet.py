"""Pictures of the states of the screens, six on a sheet, to be looked at: each theme, each size, beside btop.

    apt-get install chromium tmux btop
    .venv/bin/python tests/tui/contact_sheet.py FOLDER [--size 120x40] [--themes dark,light,none] [--states at-work,swap]

Writes `THEME-SIZE-N.png`; the theme `none` is NO_COLOR. btop shows this machine, in a terminal of the same size. Every
other figure on the sheets is made up: the states are those of test_tui_screens.py.
"""

import argparse
import asyncio
import io
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "looks"), str(HERE.parent / "shared"), str(HERE.parents[1])]

from conftest import WORLD, ScriptedDaemon  # noqa: E402 - tests/ is no package
from rich.console import Console  # noqa: E402
from rich.text import Text  # noqa: E402
from screen_shots import shot  # noqa: E402
from screen_states import STATES  # noqa: E402

A_SHEET = 6
ACROSS = 2
WIDE_PX = 1150
"""Width of one picture on a sheet."""
BTOP_S = 6.0
"""Time in which btop draws a chart."""
PAGE = """<!doctype html><meta charset=utf-8><style>
body {{ display: grid; grid-template-columns: repeat({across}, {wide}px); gap: 10px; margin: 10px; background: #888 }}
img {{ width: {wide}px; display: block }} p {{ margin: 0; font: 18px sans-serif }}
</style>{pictures}"""


async def picture(name: str, size: tuple[int, int], theme: str) -> str:
    async with shot(STATES[name], WORLD, ScriptedDaemon(), None if theme == "none" else theme) as on:
        await on.resize(size)
        return on.app.export_screenshot()


def btop(size: tuple[int, int]) -> str:
    tmux = ("tmux", "-L", "sparkdash-sheet")
    columns, rows = size
    begin = ["new-session", "-d", "-x", str(columns), "-y", str(rows), "env LANG=C.UTF-8 btop --utf-force"]
    subprocess.run([*tmux, *begin], check=True)
    try:
        time.sleep(BTOP_S)
        shown = subprocess.run([*tmux, "capture-pane", "-e", "-p"], check=True, capture_output=True, text=True).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(shown), no_wrap=True, crop=True)
    return console.export_svg(title="btop")


def sheet(folder: Path, title: str, pictures: dict[str, str]) -> Path:
    cells = []
    for name, svg in pictures.items():
        (folder / f"{title}-{name}.svg").write_text(svg)
        cells.append(f"<div><p>{name}</p><img src='{title}-{name}.svg'></div>")
    page, made = folder / f"{title}.html", folder / f"{title}.png"
    page.write_text(PAGE.format(across=ACROSS, wide=WIDE_PX, pictures="".join(cells)))
    high = -(-len(pictures) // ACROSS) * WIDE_PX * 3 // 4
    window = f"--window-size={ACROSS * (WIDE_PX + 15)},{high}"
    words = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", window, f"--screenshot={made}"]
    subprocess.run([*words, page.as_uri()], check=True, capture_output=True)
    return made


def main() -> None:
    """Draw the states, theme by theme."""
    args = arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    folder, (columns, rows) = args.folder.resolve(), args.size
    os.environ["TZ"] = "UTC"
    time.tzset()
    for theme in args.themes.split(","):
        os.environ.pop("NO_COLOR", None)
        if theme == "none":
            os.environ["NO_COLOR"] = "1"
        names = args.states.split(",") if args.states else list(STATES)
        for number, first in enumerate(range(0, len(names), A_SHEET), 1):
            some = names[first : first + A_SHEET]
            pictures = {name: asyncio.run(picture(name, args.size, theme)) for name in some}
            print(sheet(folder, f"{theme}-{columns}x{rows}-{number}", pictures), flush=True)
    if shutil.which("btop"):
        print(sheet(folder, f"btop-{columns}x{rows}", {"btop": btop(args.size)}))
    else:
        print("btop is not installed: no sheet of it. On Debian: apt-get install btop")


def arguments() -> argparse.Namespace:
    def size(text: str) -> tuple[int, int]:
        columns, _, rows = text.partition("x")
        return int(columns), int(rows)

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=size, default=(120, 40))
    parser.add_argument("--themes", default="dark,light,none")
    parser.add_argument("--states", default="", help="names with commas; all of them when left out")
    args = parser.parse_args()
    if unknown := set(filter(None, args.states.split(","))) - set(STATES):
        parser.error(f"no state is called {', '.join(sorted(unknown))}; there are {', '.join(STATES)}")
    return args


if __name__ == "__main__":
    main()
