"""Signal handlers: SIGTERM and SIGINT end the daemon, SIGHUP reads profiles and settings again.

Owns: the meaning of each signal. A terminal that closes sends SIGHUP too, and ends a daemon in its foreground.
"""

from __future__ import annotations

import asyncio
import os
import signal

import structlog

from sparkdash.daemon import reloading
from sparkdash.daemon.daemon import Daemon

LOG = structlog.get_logger("sparkdash")
ENDING = (signal.SIGINT, signal.SIGTERM)
STDIN = 0


def install_handlers(loop: asyncio.AbstractEventLoop, daemon: Daemon) -> None:
    """Install the signal handlers of `daemon` on the loop."""
    for number in ENDING:
        loop.add_signal_handler(number, daemon.server.stop)
    loop.add_signal_handler(signal.SIGHUP, _hung_up, daemon, _on_terminal())


def _hung_up(daemon: Daemon, from_terminal: bool) -> None:
    if from_terminal and not _on_terminal():
        daemon.server.stop()
        return
    LOG.info("reading profiles and settings again", asked_by="SIGHUP")
    task = asyncio.create_task(reloading.reload(daemon), name="reload")
    daemon.background_tasks.add(task)
    task.add_done_callback(daemon.background_tasks.discard)


def _on_terminal() -> bool:
    """Whether standard input is a terminal that still exists."""
    return os.isatty(STDIN)
