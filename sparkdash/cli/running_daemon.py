"""Start and reload of the daemon by commands that need one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkdash.domain.state import Snapshot


def start_daemon_if_needed(profile: str | None = None) -> None:
    """Return once a daemon serves; where none does, say that one is started, and start it.

    `profile`: what it is started for; an unknown name starts none and raises AdmissionError.
    """
    from sparkdash import paths
    from sparkdash.client import launch

    def tell() -> None:
        if profile is not None:
            from sparkdash.cli.local import check_name

            check_name(profile)
        from sparkdash.cli.output import print_note  # the dashboard's start seldom needs it

        print_note(f"No daemon runs: starting one in the background; its log: {paths.daemon_log()}")

    launch.ensure_daemon(starting=tell)


def daemon_state() -> "Snapshot | None":
    """Return the state of the daemon that answers; None without one."""
    from sparkdash.client.client import Client
    from sparkdash.errors import DaemonError

    try:
        with Client() as client:
            return client.state()
    except DaemonError:
        return None


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
