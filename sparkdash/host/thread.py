"""Blocking work beside the event loop, in a thread that nobody waits for.

Owns: that thread. Unlike an executor's it does not hold up the end of the program, so that Ctrl-C is prompt while a
download sits in a read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

T = TypeVar("T")
AGAIN_S = 0.2
"""Pause before another try where the box has no thread to give: it is at its limit of processes."""


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises. When the caller is cancelled, the thread is left to end by itself.

    Waits while the box has no thread to give, so that a program which starts too many does not end the daemon.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(outcome: Callable[[], object]) -> None:
        if not future.done():
            outcome()

    def run() -> None:
        outcome: Callable[[], object]
        try:
            result = work()
            outcome = lambda: future.set_result(result)  # noqa: E731 - one of two
        except Exception as error:  # noqa: BLE001 - handed to the caller, whatever it is
            raised = error
            outcome = lambda: future.set_exception(raised)  # noqa: E731
        with suppress(RuntimeError):  # the loop has gone
            loop.call_soon_threadsafe(settle, outcome)

    while not _started(run):  # noqa: ASYNC110 - the kernel does not tell when there is one
        await asyncio.sleep(AGAIN_S)
    return await future


def _started(run: Callable[[], None]) -> bool:
    try:
        Thread(target=run, daemon=True, name="sparkdash-work").start()
    except RuntimeError:
        return False
    return True
