"""Periodic size limit for logs that no runtime limits: those of plain processes, and of the background daemon.

Owns: how often the logs are checked. Must not know how a log is limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from sparkdash.host.files.log_limit import limit_log
from sparkdash.host.thread import in_thread

LOOK_S = 30.0
"""Pause between two checks: an engine that writes 10 MB a second exceeds the limit by a few hundred MB at most."""


async def limit_logs(files: Callable[[], Iterable[Path]]) -> None:
    """Limit the logs until cancelled; `files` is called each time, in a thread."""

    def look() -> None:
        for file in files():
            limit_log(file)

    while True:
        await asyncio.sleep(LOOK_S)
        await in_thread(look)
