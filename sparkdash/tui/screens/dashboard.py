"""The dashboard page: engine card, memory, GPU, requests; on wide terminals also comparison, swaps and log."""

from __future__ import annotations

from collections.abc import Iterable

from textual.containers import Vertical
from textual.widget import Widget

from sparkdash.tui.screens.first_run import FirstRunPage
from sparkdash.tui.widgets.card import EngineCard
from sparkdash.tui.widgets.compare import ComparePanel
from sparkdash.tui.widgets.gpu import GpuRow
from sparkdash.tui.widgets.log import LogPanel
from sparkdash.tui.widgets.memory import MemoryBar
from sparkdash.tui.widgets.requests import RequestTable
from sparkdash.tui.widgets.residents import Residents
from sparkdash.tui.widgets.swaps import SwapTable


class DashboardPage(FirstRunPage):
    """Page of one column, or of two from 160 terminal columns on."""

    title_key = "dashboard"
    keys = "s switch  / find  ? help"
    AUTO_FOCUS = "RequestTable"

    def body(self) -> Iterable[Widget]:
        """Yield both columns."""
        left = Vertical(
            EngineCard(),
            Residents(),
            MemoryBar(),
            GpuRow(),
            ComparePanel(classes="roomy"),
            SwapTable(beside=True, cursor=False, classes="roomy"),
            id="left",
        )
        right = Vertical(RequestTable(beside=True, cursor=False), LogPanel(classes="roomy"), id="right")
        yield Widget(left, right, id="dashboard")
