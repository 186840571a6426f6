"""The box page: who holds the memory of the daemon's box, what its doctor found, its power and clock."""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget

from sparkdash.domain.memory import FOREIGN, Holder, Holding, MemoryAccount
from sparkdash.domain.node import Diagnosis
from sparkdash.errors import SparkdashError
from sparkdash.tui.lines.dialog_texts import counts, finding
from sparkdash.tui.mirror import View
from sparkdash.tui.screens.page import Page
from sparkdash.tui.text import EMPTY, EdgeText, Line, Style, clip, frame, key_hint, pad, styled, wrap
from sparkdash.tui.widgets.gpu import PowerPanel
from sparkdash.tui.widgets.memory import MemoryBar
from sparkdash.tui.widgets.panel import Panel, RowMoved
from sparkdash.tui.widgets.table import Column, Table, TableRow, figures, fitting_columns, titles
from sparkdash.units import DASH, size

KIND, USER, LEAST_NAME, LEAST_WHAT = 13, 11, 20, 12
WITH_USER = 80
"""Terminal width from which the user has a column."""
MEMORY_CHART = 6
"""Rows of the memory's past, in a tall terminal."""
_OWN = (Holder.ENGINE, Holder.SPARKDASH)
COLUMNS: tuple[Column[Holding], ...] = (
    Column("memory", 10, 0, lambda one: _size(one.bytes)),
    Column("on GPU", 10, 1, lambda one: _size(one.gpu_bytes)),
    Column("in swap", 10, 3, lambda one: _size(one.swap_bytes)),
    Column("pid", 9, 2, lambda one: str(one.pid or DASH)),
)


def _size(count: int | None) -> str:
    return size(count) if count else DASH


class HolderTable(Table):
    """Table of the holders. `account` is set by the page."""

    title = "memory by holder"
    nothing = "the memory is counted…"
    account: MemoryAccount | None = None

    def holding(self, key: str | None) -> Holding | None:
        found = self.account.holdings if self.account else ()
        return next((one for number, one in enumerate(found) if str(number) == key), None)

    def head(self, width: int) -> Line:
        names = f" {'holder':<{_name(width)}}{'kind':<{KIND}}{titles(_columns(width))}"
        return styled(names, Style.DIM) + _about("user", "what", width)

    def rows(self, view: View, width: int) -> list[TableRow]:  # noqa: ARG002 - they come from the account
        found = self.account.holdings if self.account else ()
        return [TableRow(str(number), partial(_holder, one, width), one.name) for number, one in enumerate(found)]


def _name(width: int) -> int:
    return max(LEAST_NAME, min(width // 4, 40))


def _room(width: int) -> int:
    return width - 1 - _name(width) - KIND - (2 + USER if width >= WITH_USER else 0)


def _columns(width: int) -> list[Column[Holding]]:
    return fitting_columns(COLUMNS, _room(width))


def _about(user: str, what: str, width: int) -> Line:
    """Format the columns of text, as far as they have room; the frame below has them whole."""
    left = _room(width) - sum(one.cells for one in _columns(width))
    told = styled("  ") + pad(styled(user, Style.DIM), USER) if width >= WITH_USER else EMPTY
    return told + styled(what, Style.DIM) if left >= LEAST_WHAT else told


def _name_style(one: Holding) -> Style:
    if one.reclaimable or one.kind is Holder.FREE:
        return Style.DIM
    return Style.GOOD if one.kind in _OWN else Style.WARN if one.kind in FOREIGN else Style.PLAIN


def _holder(one: Holding, width: int) -> Line:
    name = pad(styled(one.name, _name_style(one)), _name(width) - 1)
    line = styled(" ") + name + styled(" ") + pad(styled(one.kind.value, Style.DIM), KIND)
    return clip(line + figures(_columns(width), one) + _about(one.user or DASH, one.what or "", width), width)


class HolderDetail(Panel):
    """Totals of the box, and how to free what the holder under the cursor has. Both are set by the page."""

    account: MemoryAccount | None = None
    chosen: Holding | None = None

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - the account is given
        if self.account is None:
            return frame([], width, EdgeText(styled("memory")), height=height)
        totals = f"{size(self.account.total)} in all, {size(self.account.available)} available"
        lines = _told(self.chosen, width - 4) if self.chosen else []
        lines += [row for note in self.account.notes for row in wrap(note, width - 4, Style.DIM)]
        name = styled(self.chosen.name if self.chosen else "memory", Style.STRONG)
        ends = key_hint("x", "ends it") if self.chosen and self.chosen.kind is Holder.ENGINE else EMPTY
        return frame(lines, width, EdgeText(name, styled(totals)), EdgeText(EMPTY, ends), height=height)


def _told(one: Holding, width: int) -> list[Line]:
    remedy = wrap(f"→ {one.remedy}", width, Style.STRONG) if one.remedy else []
    return wrap(one.what or "", width) + remedy


DOCTOR = EdgeText(styled("doctor"))


class DoctorPanel(Panel):
    """Findings of the doctor, the worst first. The diagnosis is set by the page."""

    diagnosis: Diagnosis | None = None

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - the diagnosis is given
        found = self.diagnosis
        if found is None:
            return frame([styled("The doctor examines the box…", Style.DIM)], width, DOCTOR, height=height)
        rows = [row for one in found.worst_first for row in finding(one, width - 4)]
        head = DOCTOR._replace(far=counts(found.findings))
        return frame(rows, width, head, EdgeText(EMPTY, key_hint("D", "all of it")), height=height)


class BoxPage(Page):
    """Page of the memory by holder, over what the doctor found of disks, caches and links; of a demo, its power."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "read", "read again")]

    title_key = "box"
    keys = "D doctor  , settings  x end  r read again  / find  ? help"

    def body(self) -> Iterable[Widget]:
        memory = MemoryBar()
        memory.chart_rows = MEMORY_CHART
        yield from (HolderTable(), HolderDetail(), DoctorPanel(), memory, PowerPanel())

    def on_screen_resume(self) -> None:
        self._account()
        if self.query_one(DoctorPanel).diagnosis is None:
            self._examine()

    def end_what_is_here(self) -> None:
        if one := self.query_one(HolderTable).holding(self.query_one(HolderTable).cursor):
            self.services.orders.end(one.name)

    def on_row_moved(self, message: RowMoved) -> None:
        detail = self.query_one(HolderDetail)
        detail.chosen = self.query_one(HolderTable).holding(message.key)
        detail.redraw()

    def action_read(self) -> None:
        self._account()
        self._examine()

    @work(group="memory", exclusive=True)
    async def _account(self) -> None:
        table, detail = self.query_one(HolderTable), self.query_one(HolderDetail)
        try:
            table.account = detail.account = await self.services.daemon.memory()
        except SparkdashError as error:
            table.nothing = error.text()
        detail.chosen = table.holding(table.cursor)
        table.redraw()
        detail.redraw()

    @work(group="doctor", exclusive=True)
    async def _examine(self) -> None:
        panel = self.query_one(DoctorPanel)
        with suppress(SparkdashError):  # a demo has no doctor
            panel.diagnosis = await self.services.daemon.doctor()
        self.set_class(panel.diagnosis is None, "-unexamined")
        panel.redraw()
