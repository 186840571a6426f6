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


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises. When the caller is cancelled, the thread is left to end by itself."""
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

    Thread(target=run, daemon=True, name="sparkdash-work").start()
    return await future
