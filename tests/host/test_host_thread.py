"""Work in threads of its own, also on a box that has none to give for a while."""

from __future__ import annotations

import asyncio
import threading
from threading import Thread

import pytest

from sparkdash.host import thread
from sparkdash.host.thread import in_thread


async def test_work_waits_for_a_thread_that_the_box_cannot_give_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that starts thousands of processes must not end the daemon: it waits, and its deadlines hold."""
    monkeypatch.setattr(thread, "AGAIN_S", 0.001)
    start, failures = Thread.start, iter([True, True])

    def none_left(self: Thread) -> None:
        if next(failures, False):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(Thread, "start", none_left)
    assert await in_thread(lambda: threading.current_thread().name) == "sparkdash-work"
    failures = iter(lambda: True, False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await in_thread(lambda: None)
    monkeypatch.undo()
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 / 0)
