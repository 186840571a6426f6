"""Breakable: a stretch of one request that others may end: its client by leaving, the box's owner, an engine that dies.

Owns: turning the cancellation of a task into the reason for it. Must not know the reasons.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class CancelScope:
    """Use it as a context manager, in the task that is to be ended."""

    __slots__ = ("_before", "_for_good", "_reason", "_task")

    _task: asyncio.Task[object] | None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None  # noqa: S101 - a coroutine runs in one
        self._before = self._task.cancelling()
        self._reason: BaseException | None = None
        self._for_good = False
        return self

    def cancel(self, reason: BaseException) -> None:
        """End the stretch: where it is left, `reason` is raised. Only the first counts, and none once it is over.

        To be called while the task waits: by callbacks and other tasks.
        """
        if not self._for_good:
            self._for_good = True
            self._end(reason)

    def interrupt(self, reason: BaseException) -> None:
        """As `cancel`, but any reason to end the stretch comes before this one, which asks only for what is done just now to
        be broken off: whoever does that asks `take_reason`."""
        if self._reason is None:
            self._end(reason)

    def _end(self, reason: BaseException) -> None:
        if self._task is None:
            return
        if self._reason is None:
            self._task.cancel()
        self._reason = reason

    def take_reason(self) -> BaseException | None:
        """Why the task was cancelled, to be raised in place of that; None: somebody else wants it to end."""
        reason, self._reason, self._for_good = self._reason, None, False
        if reason is None or self._task is None or self._task.uncancel() > self._before:
            return None
        return reason

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        why = self.take_reason() if kind is asyncio.CancelledError else None
        self._task = None
        if why is not None:
            raise why from None
