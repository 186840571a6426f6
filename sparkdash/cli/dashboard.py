"""The dashboard in this terminal, and the daemon that it needs.

Rule: no typer, and nothing of the commands: this is all that `sparkdash` without a command loads of the command line.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkdash.tui.first_run import BoxLook


def open_dashboard() -> None:
    """Start a daemon if none runs, and show the dashboard until the user quits."""
    gc.disable()  # while modules are loaded, which all stay: collections are a twentieth of the start
    try:
        from sparkdash.cli.running_daemon import start_daemon_if_needed

        start_daemon_if_needed()
        import sparkdash.tui.app  # noqa: F401 - loaded before collections begin
    finally:
        gc.enable()
    gc.freeze()  # so that no later collection walks through what was loaded
    from sparkdash.client.address import find_daemon
    from sparkdash.tui.app import run_dashboard

    run_dashboard(box=None if find_daemon().given else this_box)


def this_box() -> BoxLook:
    """Return what looks at this box; its modules take a sixth of the dashboard's start, and few looks need them."""
    from sparkdash.cli.this_box import ThisBox

    return ThisBox()
