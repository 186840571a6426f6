"""Signals: SIGTERM and SIGINT end the daemon, SIGHUP reads the owner's files again.

Owns: the meaning of each signal. A terminal that closes sends SIGHUP too: a daemon in its foreground ends with the
terminal, as it was not asked to stay.
"""

from __future__ import annotations

import asyncio
import os
import signal

import structlog

from sparkdash.daemon import reading
from sparkdash.daemon.house import House

LOG = structlog.get_logger("sparkdash")
ENDING = (signal.SIGINT, signal.SIGTERM)
STDIN = 0


def handle(loop: asyncio.AbstractEventLoop, house: House) -> None:
    """Install the handlers."""
    for number in ENDING:
        loop.add_signal_handler(number, house.server.stop)
    loop.add_signal_handler(signal.SIGHUP, _hung_up, house, _on_terminal())


def _hung_up(house: House, from_terminal: bool) -> None:
    if from_terminal and not _on_terminal():
        house.server.stop()
        return
    LOG.info("reading profiles and settings again", asked_by="SIGHUP")
    task = asyncio.create_task(reading.reload(house), name="reload")
    house.errands.add(task)
    task.add_done_callback(house.errands.discard)


def _on_terminal() -> bool:
    """Whether standard input is a terminal that still exists."""
    return os.isatty(STDIN)
