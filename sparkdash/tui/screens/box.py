"""The box page: who holds the memory of the daemon's box, and the ways to its doctor and its settings."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widget import Widget

from sparkdash.domain.memory import FOREIGN, Holder, Holding, MemoryAccount
from sparkdash.errors import SparkdashError
from sparkdash.tui.mirror import View
from sparkdash.tui.screens.page import Page
from sparkdash.tui.text import EdgeText, Line, Style, align_right, clip, frame, pad, styled, wrap
from sparkdash.tui.widgets.panel import Panel, RowMoved
from sparkdash.tui.widgets.table import Table, TableRow
from sparkdash.units import DASH, size

KIND, BYTES, PID, USER, LEAST_NAME = 13, 10, 9, 11, 20
_OWN = (Holder.ENGINE, Holder.SPARKDASH)


class HolderTable(Table):
    """Table of the holders. `account` is set by the page."""

    title = "memory by holder"
    nothing = "the memory is counted…"
    account: MemoryAccount | None = None

    def holding(self, key: str | None) -> Holding | None:
        found = self.account.holdings if self.account else ()
        return next((one for number, one in enumerate(found) if str(number) == key), None)

    def head(self, width: int) -> Line:
        figures = "".join(f"{name:>{BYTES}}" for name in ("memory", "on GPU", "in swap"))
        about = f"{'pid':>{PID}}  {'user':<{USER}}what"
        return styled(f" {'holder':<{_name(width)}}{'kind':<{KIND}}{figures}{about}", Style.DIM)

    def rows(self, view: View, width: int) -> list[TableRow]:  # noqa: ARG002 - they come from the account
        found = self.account.holdings if self.account else ()
        return [TableRow(str(number), partial(_holder, one, width), one.name) for number, one in enumerate(found)]


def _name(width: int) -> int:
    return max(LEAST_NAME, min(width // 4, 40))


def _name_style(one: Holding) -> Style:
    if one.reclaimable or one.kind is Holder.FREE:
        return Style.DIM
    return Style.GOOD if one.kind in _OWN else Style.WARN if one.kind in FOREIGN else Style.PLAIN


def _holder(one: Holding, width: int) -> Line:
    name = pad(styled(one.name, _name_style(one)), _name(width) - 1)
    line = styled(" ") + name + styled(" ") + pad(styled(one.kind.value, Style.DIM), KIND)
    for count in (one.bytes, one.gpu_bytes, one.swap_bytes):
        line += align_right(styled(size(count) if count else DASH, Style.PLAIN if count else Style.DIM), BYTES)
    line += align_right(styled(str(one.pid) if one.pid else DASH, Style.DIM), PID) + styled("  ")
    return clip(line + pad(styled(one.user or DASH, Style.DIM), USER) + styled(one.what or "", Style.DIM), width)


class HolderDetail(Panel):
    """Totals of the box, and how to free what the holder under the cursor has. Both are set by the page."""

    account: MemoryAccount | None = None
    chosen: Holding | None = None

    def draw(self, view: View, width: int, height: int) -> list[Line]:  # noqa: ARG002 - the account is given
        if self.account is None:
            return frame([], width, EdgeText(styled("memory")), height=height)
        totals = f"{size(self.account.total)} in all, {size(self.account.available)} available"
        lines = wrap(self.chosen.what or "", width - 4) if self.chosen else []
        if self.chosen and self.chosen.remedy:
            lines += wrap(f"→ {self.chosen.remedy}", width - 4, Style.STRONG)
        lines += [row for note in self.account.notes for row in wrap(note, width - 4, Style.DIM)]
        name = styled(self.chosen.name if self.chosen else "memory", Style.STRONG)
        return frame(lines, width, EdgeText(name, styled(totals)), height=height)


class BoxPage(Page):
    """Page of the memory by holder."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("r", "read", "read again")]

    title_key = "box"
    keys = "D doctor  , settings  x end  r read again  / find  ? help"

    def body(self) -> Iterable[Widget]:
        yield HolderTable()
        yield HolderDetail()

    def on_screen_resume(self) -> None:
        self.action_read()

    def end_what_is_here(self) -> None:
        if one := self.query_one(HolderTable).holding(self.query_one(HolderTable).cursor):
            self.services.orders.end(one.name)

    def on_row_moved(self, message: RowMoved) -> None:
        detail = self.query_one(HolderDetail)
        detail.chosen = self.query_one(HolderTable).holding(message.key)
        detail.redraw()

    @work(group="memory", exclusive=True)
    async def action_read(self) -> None:
        table, detail = self.query_one(HolderTable), self.query_one(HolderDetail)
        try:
            table.account = detail.account = await self.services.daemon.memory()
        except SparkdashError as error:
            table.nothing = error.text()
        detail.chosen = table.holding(table.cursor)
        table.redraw()
        detail.redraw()
