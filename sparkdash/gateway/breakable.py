"""Breakable: a stretch of one request that others may end: its client by leaving, the box's owner, an engine that dies.

Owns: turning the cancellation of a task into the reason for it. Must not know the reasons.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Breakable:
    """Use it as a context manager, in the task that is to be ended; several may stand inside one another."""

    __slots__ = ("_before", "_reason", "_task")

    _task: asyncio.Task[object] | None

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None  # noqa: S101 - a coroutine runs in one
        self._before = self._task.cancelling()
        self._reason: BaseException | None = None
        return self

    def off(self, reason: BaseException) -> None:
        """End the stretch: where it is left, `reason` is raised. Only the first counts, and none once it is over.

        To be called while the task waits: by callbacks and other tasks.
        """
        if self._task is not None and self._reason is None:
            self._reason = reason
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._reason is None or kind is not asyncio.CancelledError:
            return
        assert task is not None  # noqa: S101 - it was entered
        if task.uncancel() <= self._before:  # nobody else wants it to end
            raise self._reason from None
