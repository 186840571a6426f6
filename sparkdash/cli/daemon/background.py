"""Start of the daemon in the background by commands that need one."""

from __future__ import annotations


def start_daemon_if_needed() -> None:
    """Return once a daemon serves; where none does, say that one is started, and start it.

    Raises:
        DaemonError: it does not serve, or the owner named an address where nothing answers.
    """
    from sparkdash.client import launch

    def tell() -> None:
        from sparkdash.cli.output.screen import print_note  # the dashboard's start seldom needs it

        print_note(f"No daemon runs: starting one in the background; its log: {launch.log_file()}")

    launch.ensure_daemon(starting=tell)
