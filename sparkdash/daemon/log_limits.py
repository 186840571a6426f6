"""The daemon's watch over logs that nobody else limits: engines that are plain processes, and its own in the
background.

Owns: when they are looked at. Must not know how a log is limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from sparkdash.host.log_limit import limit_log
from sparkdash.host.thread import in_thread

LOOK_S = 30.0
"""Between two looks: an engine that writes 10 MB a second is then a few hundred MB beyond the limit at most."""


async def limit_logs(files: Callable[[], Iterable[Path]]) -> None:
    """For ever; `files` is asked each time, in a thread."""

    def look() -> None:
        for file in files():
            limit_log(file)

    while True:
        await asyncio.sleep(LOOK_S)
        await in_thread(look)
