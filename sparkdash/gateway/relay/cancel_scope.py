"""CancelScope: a stretch of one request that its client, the box's owner or a dying engine may end.

Owns: turning the cancellation of a task into the reason for it. Must not know the reasons.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class CancelScope:
    """Context manager, entered in the task that may be cancelled."""

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
        """Cancel the task; `reason` is raised where the scope is left. Only the first reason counts.

        To be called while the task waits, by callbacks and other tasks. Does nothing once the scope is left.
        """
        if not self._for_good:
            self._for_good = True
            self._end(reason)

    def interrupt(self, reason: BaseException) -> None:
        """Cancel the task's present step; the task then asks `take_reason`. A `cancel` takes precedence."""
        if self._reason is None:
            self._end(reason)

    def _end(self, reason: BaseException) -> None:
        if self._task is None:
            return
        if self._reason is None:
            self._task.cancel()
        self._reason = reason

    def take_reason(self) -> BaseException | None:
        """Return and clear the reason of the cancellation, to be raised in its place;

        None: somebody else cancelled the task.
        """
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
