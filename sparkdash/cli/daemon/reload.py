"""Reload of a running daemon by a command that changed its files."""

from __future__ import annotations


def reload_daemon() -> bool:
    """Have a running daemon read the profiles and nodes again; False without a daemon.

    The daemon finds changed profile files by itself a moment later; a command that uses them at once cannot wait.
    """
    from sparkdash.client.blocking import Client
    from sparkdash.errors import DaemonError

    try:
        with Client() as client:
            client.reload()
    except DaemonError:
        return False
    return True
