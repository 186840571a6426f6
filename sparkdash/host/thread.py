"""Blocking work beside the event loop, in a daemon thread.

Unlike an executor's, it does not delay the end of the program, so Ctrl-C is prompt even during a blocking read.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

T = TypeVar("T")
THREAD_NAME = "sparkdash-work"
AGAIN_S = 0.2
"""Pause before another try while the box is at its limit of threads."""


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread; return its result or raise its exception. After a cancellation the thread ends by itself.

    Waits while the box has no free thread, so that another program's excess does not end the daemon.
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

    while not _started(run):  # noqa: ASYNC110 - the kernel does not report a free thread
        await asyncio.sleep(AGAIN_S)
    return await future


def _started(run: Callable[[], None]) -> bool:
    try:
        Thread(target=run, daemon=True, name=THREAD_NAME).start()
    except RuntimeError:
        return False
    return True
