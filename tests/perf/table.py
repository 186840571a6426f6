"""Cost of the dashboard's table beside Textual's DataTable, in turns, each in a terminal of 120x40.

    python tests/perf/table.py        # two minutes

Both show 200 requests in eight columns, 38 of them on the screen, newest first. Three changes, thirty times a round each:
figures of eight requests change, a request comes, the cursor moves by a row. The table has the processor's time of one
change until it is drawn, and the bytes that the terminal was sent for it.
"""

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from dashboard import terminal
from textual.app import App, ComposeResult
from textual.widgets import DataTable

from sparkdash.tui import theme
from sparkdash.tui.text import Line, Style, styled
from sparkdash.tui.widgets.table import Column, Table, TableRow, figures, titles

REQUESTS, CHANGED, TIMES, ROUNDS = 200, 8, 30, 3
NAMES = ("number", "profile", "client", "prompt", "answer", "TTFT", "tok/s", "took")
CELLS = 14
DRAWN_S = 0.1
"""Longer than a change takes to be drawn."""
Cells = tuple[str, ...]


def request(number: int, took: int = 0) -> Cells:
    figures = (f"{number * 37 % 9000}", f"{took * 13}", "0.41 s", f"{50 + took % 9}", f"{took} s")
    return (f"{number}", f"qwen-{number % 7}", "codex", *figures)


class OwnTable(Table):
    """The dashboard's: it gets every row at each change, and makes the text of those that are seen."""

    columns = tuple(Column[Cells](name, CELLS, 1, lambda row, at=at: row[at]) for at, name in enumerate(NAMES))
    requests: dict[int, Cells] = {}

    def head(self, width: int) -> Line:
        return styled(titles(self.columns), Style.DIM)

    def rows(self, view: object, width: int) -> list[TableRow]:
        return [self._row(number) for number in sorted(self.requests, reverse=True)]

    def _row(self, number: int) -> TableRow:
        return TableRow(f"{number}", lambda: figures(self.columns, self.requests[number]))

    def put(self, number: int, row: Cells) -> None:
        self.requests[number] = row

    def shown(self) -> None:
        self.redraw()

    def down(self) -> None:
        self.action_move(1)


class TextualTable(DataTable[str]):
    """Textual's: it is told the cells that differ; a row that comes first is added last, and the rows are sorted."""

    def on_mount(self) -> None:
        self.cursor_type = "row"
        for name in NAMES:
            self.add_column(name, width=CELLS - 2, key=name)

    def put(self, number: int, row: Cells) -> None:
        if f"{number}" not in self.rows:
            self.add_row(*row, key=f"{number}")
            self.sort("number", key=int, reverse=True)
            return
        for name, told in zip(NAMES, row, strict=True):
            if self.get_cell(f"{number}", name) != told:
                self.update_cell(f"{number}", name, told)

    def shown(self) -> None:
        """Textual has seen to it."""

    def down(self) -> None:
        self.action_cursor_down()


class Measured(App[None]):
    """Shows one table, makes the changes, and writes what each cost."""

    CSS = "OwnTable, TextualTable { width: 100%; height: 100%; }"
    view, braille = None, True

    def __init__(self, name: str, out: Path) -> None:
        super().__init__()
        self.table = OwnTable() if name == "own" else TextualTable()
        self._out = out
        self._sent = 0

    def compose(self) -> ComposeResult:
        yield self.table

    def on_mount(self) -> None:
        for look in theme.textual_themes():
            self.register_theme(look)
        self.theme = theme.DARK
        self.run_worker(self._measure())

    async def _measure(self) -> None:
        write = self._driver.write
        self._driver.write = lambda text: (self._count(text), write(text))
        for number in range(REQUESTS):
            self.table.put(number, request(number))
        self.table.shown()
        self.table.focus()
        await asyncio.sleep(1)
        costs = {"figures of eight rows": self._figures, "a row at the top": self._first, "the cursor": self._cursor}
        told = {}
        for what, change in costs.items():
            before, self._sent = time.process_time(), 0
            for time_ in range(TIMES):
                change(time_)
                await asyncio.sleep(DRAWN_S)
            told[what] = ((time.process_time() - before) / TIMES * 1e3, self._sent / TIMES)
        self._out.write_text(json.dumps(told))
        self.exit()

    def _count(self, text: str) -> None:
        self._sent += len(text.encode())

    def _figures(self, time_: int) -> None:
        for number in range(REQUESTS - CHANGED, REQUESTS):
            self.table.put(number, request(number, time_ + 1))
        self.table.shown()

    def _first(self, time_: int) -> None:
        self.table.put(REQUESTS + time_, request(REQUESTS + time_))
        self.table.shown()

    def _cursor(self, _time: int) -> None:
        self.table.down()


def main() -> None:
    """Measure both in turns and print the medians."""
    if len(sys.argv) == 3:
        Measured(sys.argv[1], Path(sys.argv[2])).run()
        return
    seen: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            for name in ("own", "textual"):
                out = Path(folder) / f"{name}{turn}"
                with terminal((sys.executable, __file__, name, str(out)), {}) as shown:
                    until = time.monotonic() + 200
                    while not out.exists() and time.monotonic() < until:
                        shown.read_for(0.5)
                for what, cost in json.loads(out.read_text()).items():
                    seen.setdefault((what, name), []).append(cost)
    print("| change | own table | DataTable |\n|---|---:|---:|")
    for what in dict.fromkeys(what for what, _ in seen):
        told = [[median(part) for part in zip(*seen[what, name], strict=True)] for name in ("own", "textual")]
        print(f"| {what} | " + " | ".join(f"{ms:.2f} ms, {sent:.0f} bytes" for ms, sent in told) + " |")


if __name__ == "__main__":
    main()
