"""The dashboard's pages by name. All but the first are imported when they are first opened, as its start is short."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparkdash.tui.screens.dashboard import DashboardPage
from sparkdash.tui.screens.page import Page


def _profiles() -> Page:
    from sparkdash.tui.screens.profiles import ProfilesPage

    return ProfilesPage()


def _requests() -> Page:
    from sparkdash.tui.screens.requests import RequestsPage

    return RequestsPage()


def _compare() -> Page:
    from sparkdash.tui.screens.compare import ComparePage

    return ComparePage()


def _logs() -> Page:
    from sparkdash.tui.screens.page import LogsPage

    return LogsPage()


def _history() -> Page:
    from sparkdash.tui.screens.history import HistoryPage

    return HistoryPage()


def _box() -> Page:
    from sparkdash.tui.screens.box import BoxPage

    return BoxPage()


MAKERS: Mapping[str, Callable[[], Page]] = {
    "dashboard": DashboardPage,
    "profiles": _profiles,
    "requests": _requests,
    "compare": _compare,
    "logs": _logs,
    "history": _history,
    "box": _box,
}
"""Constructors of the pages, by name in `header.PAGES`."""
