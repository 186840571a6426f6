"""HookDispatcher: listens to the bus, and runs the hooks that want an event.

Owns: how many hooks run and wait, and which failures were told. Must not know what a hook does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from sparkdash.bus import Bus
from sparkdash.domain.event import Level, Notice
from sparkdash.domain.state import Snapshot
from sparkdash.errors import SparkdashError
from sparkdash.hooks.events import HookEvent, HookEventFinder
from sparkdash.hooks.run import run_hook
from sparkdash.settings import Hook
from sparkdash.upstream import Upstream

LOG = structlog.get_logger("sparkdash.hooks")
AT_ONCE = 4
"""Hooks that run at the same time."""
WAITING = 64
"""Hooks that wait for their turn; further events are dropped, and the log says so."""


class HookDispatcher:
    """Runs hooks until cancelled. `hooks`: those of the settings that hold now."""

    def __init__(self, bus: Bus, upstream: Upstream, hooks: Callable[[], Sequence[Hook]]) -> None:
        self._bus = bus
        self._upstream = upstream
        self._hooks = hooks
        self._places = asyncio.Semaphore(AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()
        self._failing: set[Hook] = set()
        """Hooks whose failure was told, until they succeed."""

    async def run(self) -> None:
        """Listen until the bus ends; then wait for the hooks that run, as long as their limits allow."""
        subscription = self._bus.subscribe(samples=False, requests=False)
        finder = HookEventFinder(self._bus.snapshot)
        try:
            async for item in subscription:
                if isinstance(item, Snapshot):
                    finder.look(item)
                    continue
                for event in finder.events(item.fact, item.at):
                    self._begin(event)
            await asyncio.gather(*self._running)
        finally:
            subscription.leave()
            for task in self._running:
                task.cancel()

    def _begin(self, event: HookEvent) -> None:
        for hook in self._hooks():
            if not hook.wants(event.event, event.profile):
                continue
            if len(self._running) >= AT_ONCE + WAITING:
                LOG.warning("too many hooks wait; one is not run", hook=hook.name, hook_event=event.event.value)
                continue
            task = asyncio.create_task(self._run(hook, event), name=f"hook {hook.name}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self, hook: Hook, event: HookEvent) -> None:
        async with self._places:
            try:
                await run_hook(hook, event, self._upstream)
            except SparkdashError as error:
                self._failed(hook, event, error)
            else:
                self._failing.discard(hook)
                LOG.info("a hook ran", hook=hook.name, hook_event=event.event.value)

    def _failed(self, hook: Hook, event: HookEvent, error: SparkdashError) -> None:
        LOG.warning("a hook failed", hook=hook.name, hook_event=event.event.value, why=error.message)
        if hook not in self._failing:
            self._failing.add(hook)
            self._bus.publish(Notice(level=Level.WARNING, code=error.code, text=error.text()))
