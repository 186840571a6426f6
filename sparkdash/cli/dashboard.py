"""The dashboard in this terminal, and the start and reload of the daemon that it and some commands need.

Rule: no typer, and nothing of the commands: this is all that `sparkdash` without a command loads of the command line.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkdash.tui.first_run import BoxLook


def open_dashboard() -> None:
    gc.disable()  # while modules are loaded, which all stay: collections are a twentieth of the start
    try:
        start_daemon_if_needed()
        import sparkdash.tui.app  # noqa: F401 - loaded before collections begin
    finally:
        gc.enable()
    gc.freeze()  # so that no later collection walks through what was loaded
    show_dashboard()


def show_dashboard() -> None:
    """Show the dashboard of this user's daemon until the user quits."""
    from sparkdash.client.address import find_daemon
    from sparkdash.tui.app import run_dashboard

    run_dashboard(box=None if find_daemon().given else this_box)


def this_box() -> BoxLook:
    """Return what looks at this box; its modules take a sixth of the dashboard's start, and few looks need them."""
    from sparkdash.cli.this_box import ThisBox

    return ThisBox()


def start_daemon_if_needed() -> None:
    """Return once a daemon serves; where none does, say that one is started, and start it.

    Raises:
        DaemonError: it does not serve, or the owner named an address where nothing answers.
    """
    from sparkdash.client import launch

    def tell() -> None:
        from sparkdash.cli.output import print_note  # the dashboard's start seldom needs it

        print_note(f"No daemon runs: starting one in the background; its log: {launch.log_file()}")

    launch.ensure_daemon(starting=tell)


def reload_daemon() -> bool:
    """Have a running daemon read the profiles and nodes again; False without a daemon.

    The daemon finds changed profile files by itself a moment later; a command that uses them at once cannot wait.
    """
    from sparkdash.client.client import Client
    from sparkdash.errors import DaemonError

    try:
        with Client() as client:
            client.reload()
    except DaemonError:
        return False
    return True


if (
    __name__ == "__main__"
):  # one tab of a browser: `sparkdash` asks for a terminal, and under textual-serve stdout is a pipe
    show_dashboard()
