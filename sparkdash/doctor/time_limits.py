"""Blocking reads with a time limit, each in a thread of its own.

Owns: the thread of a single read. A read that hangs in the kernel (a dead NFS mount, a driver) cannot be cut short. Its
daemon thread is left behind, and blocks neither the loop nor the exit. Must not know what is read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from typing import TypeVar

from sparkdash.doctor.facts import UnreadFact

READ_S = 5.0
"""Time limit of one read. All reads together take 0.1 s on an idle box."""

K = TypeVar("K")
V = TypeVar("V")


async def read_within(what: str, work: Callable[[], V], *, limit_s: float = READ_S) -> V | UnreadFact:
    """Run `work` in a thread of its own; return its result, or an UnreadFact if it fails or takes too long."""
    future: Future[V] = Future()
    future.set_running_or_notify_cancel()
    threading.Thread(target=_work, args=(future, work), name=f"doctor {what}", daemon=True).start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), limit_s)
    except TimeoutError:
        return UnreadFact(f"{what} did not answer within {limit_s:g} s")
    except Exception as error:  # noqa: BLE001 - any failure is the reason why the fact is unknown
        return UnreadFact(f"{what} cannot be read: {error}")


async def gather_by_key(keys: Iterable[K], read: Callable[[K], Awaitable[V]]) -> dict[K, V]:
    """Read all keys at once; return the results by key."""
    ordered = list(keys)
    return dict(zip(ordered, await asyncio.gather(*map(read, ordered)), strict=True))


def _work(future: Future[V], work: Callable[[], V]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - handed to the waiting caller
        future.set_exception(error)
    else:
        future.set_result(result)
