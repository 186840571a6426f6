"""Translator: client of the translator process, with early start and what it has learned of engines.

Must not know requests, engines or litellm. `children.process` owns the process; an engine's key comes with each
request.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from sparkdash.domain.event import Fact, Level, Notice
from sparkdash.errors import HostError, UpstreamError
from sparkdash.gateway.child_process import ChildProcess
from sparkdash.units import duration, gib


class Translator(ChildProcess):
    """Client of the translator; an async context manager. `publish` gets a notice of its start and size."""

    name = "translator"
    packages = ("litellm",)

    def __init__(
        self,
        folder: Path,
        idle_s: float,
        publish: Callable[[Fact], object],
        argv: Sequence[str] = (sys.executable, "-m", "sparkdash.gateway.translate"),
    ) -> None:
        super().__init__(folder, idle_s, argv)
        self._publish = publish
        self.unsupported: set[tuple[str, float | None, str]] = set()
        """Incarnations of engines, with the paths that they answered with 404."""
        self._early: asyncio.Task[None] | None = None
        """Task of an early start."""

    async def __aexit__(self, *_: object) -> None:
        if self._early:
            self._early.cancel()
        await super().__aexit__()

    def start_early(self) -> None:
        """Start the translator while a request that needs it still waits for its engine."""
        if self._running is None and not self._starting.locked() and self.installed:
            self._early = asyncio.ensure_future(self._start_early())
            self._keep(self._early)

    async def _start_early(self) -> None:
        with suppress(HostError), self._in_use():  # the request that needs it gets the error
            await self._started()

    def on_started(self, rss: int | None) -> None:
        """Publish a notice with the translator's memory."""
        size = f"It takes {gib(rss)} of memory and ends after {duration(self._idle_s)} without use."
        text = f"The translator has started, as an engine does not speak its client's protocol. {size}"
        self._publish(Notice(level=Level.INFO, code="translator_started", text=text))

    def broke_off_error(self) -> UpstreamError:
        """Build the error of a broken answer: the engine broke it off, and the translator passed that on."""
        words = "The engine broke off in the middle of its answer, which was being translated."
        return UpstreamError(words, code="engine_died")

    def not_installed_error(self) -> HostError:
        """Build the error for a missing installation, with a status that no client retries."""
        return HostError(
            "This engine does not speak the request's protocol, and the translator is not installed.",
            code="translator_missing",
            status=501,
            hint=(
                "Install it where sparkdash is, with `pip install 'sparkdash[translate]'`, "
                "or have the client use chat completions."
            ),
        )
