"""Console script of `sparkdash`: opens the dashboard, or runs the command line.

Rule: no command is imported before the dashboard: loading the command line takes as long as the dashboard itself.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from sparkdash.cli import OPENING

if TYPE_CHECKING:
    from sparkdash.tui.first_run import BoxLook

COMPLETION = "_SPARKDASH_COMPLETE"
"""Variable by which a shell asks for the completion of commands; it gives no arguments."""


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

    run_dashboard(box=None if find_daemon().given else _this_box)


def _this_box() -> BoxLook:
    """Return what looks at this box; its modules take a sixth of the dashboard's start, and few looks need them."""
    from sparkdash.cli.this_box import ThisBox

    return ThisBox()


def main() -> None:
    on_terminal = sys.stdout.isatty() and sys.stderr.isatty()
    if len(sys.argv) > 1 or not on_terminal or COMPLETION in os.environ:
        from sparkdash.cli.main import main as run_command_line

        run_command_line()
        return
    sys.stderr.write(f"{OPENING}\r")
    sys.stderr.flush()
    from sparkdash.cli.exits import exit_codes

    with exit_codes():
        open_dashboard()
