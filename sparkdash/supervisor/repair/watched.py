"""Watched: one incarnation of an engine under watch, and the reason for which it is given up.

Owns: the tasks that belong to the incarnation. Must not decide why an engine is given up.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from sparkdash.domain.engine import Engine
from sparkdash.domain.profile import Profile
from sparkdash.errors import EngineError


@dataclass(slots=True)
class WatchedEngine:
    """An incarnation of an engine under watch."""

    profile: Profile
    engine: Engine
    look: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to have an attached server probed at once."""
    used: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while the engine has requests."""
    given_up: asyncio.Future[EngineError] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Done, with the reason, once the engine is given up though it has not ended."""
    proof: asyncio.Task[str | None] | None = None
    """Short generation that shows whether the engine works; shared by all who ask meanwhile."""
    task: asyncio.Task[EngineError] = field(init=False)
    """Task of the watch; done, with the reason, once the death is reported."""
    looking: list[asyncio.Task[None]] = field(default_factory=list)
    """Tasks that look at the engine while it is used; an attached server is also probed all the time."""
    ends_itself: bool = False
    """Whether the engine was given up because it is about to end."""
    grace_s: float = 0.0
    """Time that the engine has to end by itself once it was given up."""

    def stop_looking(self) -> None:
        """Stop looking at an engine that has ended, or is about to."""
        for task in self.looking:
            task.cancel()

    def give_up(self, error: EngineError, *, ends_itself: bool = False, grace_s: float = 0.0) -> None:
        """Give the engine up: it is ended, unless it ends by itself in a moment. Only the first reason counts."""
        if not self.given_up.done():
            self.ends_itself = ends_itself
            self.grace_s = grace_s
            self.given_up.set_result(error)
