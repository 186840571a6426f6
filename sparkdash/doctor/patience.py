"""Waiting for what may never answer, but not for ever.

Owns: the thread that a single read is made in. A read that hangs in the kernel (a dead NFS mount, a driver) cannot be
cut short: its daemon thread is left behind, and holds up neither the loop nor the exit.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

from sparkdash.doctor.facts import UnreadFact

READ_S = 5.0
"""Limit of one read. All of them together take 0.1 s on an idle box."""

K = TypeVar("K")
V = TypeVar("V")


async def within(what: str, work: Callable[[], V], *, limit_s: float = READ_S) -> V | UnreadFact:
    """What `work` gives, in a thread of its own; Unread when it fails or does not answer in time."""
    future: Future[V] = Future()
    future.set_running_or_notify_cancel()
    threading.Thread(target=_work, args=(future, work), name=f"doctor {what}", daemon=True).start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), limit_s)
    except TimeoutError:
        return UnreadFact(f"{what} did not answer within {limit_s:g} s")
    except Exception as error:  # noqa: BLE001 - whatever it is, it is why this is not known
        return UnreadFact(f"{what} cannot be read: {error}")


async def each(keys: Iterable[K], read: Callable[[K], Awaitable[V]]) -> dict[K, V]:
    """All keys at once, each with what `read` gives for it."""
    ordered = list(keys)
    return dict(zip(ordered, await asyncio.gather(*map(read, ordered)), strict=True))


def _work(future: Future[V], work: Callable[[], V]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - it belongs to the one who waits
        future.set_exception(error)
    else:
        future.set_result(result)
