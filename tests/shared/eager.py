"""Tasks that take their first step where they are made, as asyncio has them from Python 3.12 on, for older ones as well.

Textual uses them where it can: what a person runs on 3.12 is tried on 3.11, too.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


def _stepped(loop: Any, coro: Coroutine[Any, Any, Any], **rest: Any) -> asyncio.Task[Any]:
    """The step that a new task has left for the loop's next turn is taken at once, between two of the present task's."""
    task = asyncio.Task(coro, loop=loop, **rest)
    if not loop.is_running():  # as Python's own factory
        return task
    outer = asyncio.current_task(loop)
    first = loop._ready.pop()
    if outer is not None:
        asyncio.tasks._leave_task(loop, outer)  # type: ignore[attr-defined]
    try:
        first._run()
    finally:
        if outer is not None:
            asyncio.tasks._enter_task(loop, outer)  # type: ignore[attr-defined]
    return task


factory = getattr(asyncio, "eager_task_factory", _stepped)
