"""MetricsSource: repeated scrapes of one engine, one request in flight at most."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sparkdash.domain.engine import Engine
from sparkdash.domain.metric import EngineFigures, EngineSample
from sparkdash.engines import registry
from sparkdash.engines.probes import MetricNames
from sparkdash.errors import UpstreamError
from sparkdash.log import LOG
from sparkdash.telemetry import exposition
from sparkdash.telemetry.derive import EngineHistory, figures_of
from sparkdash.telemetry.reading import Reading, Slots, parse_slots, reading_of, sample_names
from sparkdash.telemetry.totals import EngineTotals
from sparkdash.upstream import SmallResponse, Upstream

ANSWER_S = 3.0
"""Deadline of one request: older llama-servers answer between two batches only, vLLM late while it tokenises."""
BEGIN_S = 1.0
FAILURES = 3
"""Failed scrapes in a row after which an engine is asked less often."""
BACK_OFF_S = 5.0
REST_S = 1.5
"""Shortest interval of scrapes of an engine that rests: every second tick, before its figures look old (STALE_S).

A scrape costs an idle vLLM 7 ms of processor time (70 kB, measured on x86): more than a whole tick costs here.
"""
LEAP_S = 1.0
"""Divergence of the box's clock and the monotonic one that shows a suspended box, or a clock that was set."""
RECOGNISE_S = 60.0, 3600.0
"""First and longest pause between searches for metrics at an attached server: some log every unknown route."""
NOT_FOUND = 404
NOT_IMPLEMENTED = 501
"""Status of a llama-server for a route that was switched off (`--no-slots`)."""


class Unreadable(Exception):  # noqa: N818 - not a failure of ours: what the engine answered cannot be used
    """Raised for an answer without usable figures; the text says why."""


class Vanished(Unreadable):
    """Raised when metrics that were read earlier are gone."""


class MetricsSource:
    """Figures of one incarnation of an engine. `clock` gives Unix seconds, `monotonic` the seconds of rates."""

    def __init__(
        self,
        engine: Engine,
        names: MetricNames,
        upstream: Upstream,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        totals: EngineTotals | None = None,
    ) -> None:
        self.identity = identity(engine)
        self._url = (engine.url or "").rstrip("/")
        self._names = names if names.recognised else None
        self._is_foreign = not names.recognised
        self._recognise_at = -math.inf
        self._pause_s = RECOGNISE_S[0]
        self._upstream = upstream
        self._clock = clock
        self._monotonic = monotonic
        self._totals = totals or EngineTotals()
        self._history = EngineHistory(self._totals)
        self._idle_slots: Slots | None = None
        self._reader: exposition.ExpositionReader | None = None
        self._read_last: tuple[exposition.Scrape, Reading] | None = None
        """Last scrape with its reading: an idle engine tells the same again."""
        self._task: asyncio.Task[None] | None = None
        self._asked_at = monotonic()
        self._failures = 0
        self._skew: float | None = None
        """Unix time minus monotonic time at the last reading."""
        self._last: EngineSample | None = None
        self._error: str | None = None
        self._figures = EngineFigures()

    def ask(self, *, in_use: bool = True) -> asyncio.Task[None] | None:
        """Begin a scrape unless one is running or none is due; return the running task, if any.

        `in_use`: the gateway has requests for the engine; without them an engine that rests is asked less often.
        """
        now = self._monotonic()
        if self._task is not None and not self._task.done():
            return self._task
        if now - self._asked_at < self._pause(in_use):
            return None
        self._asked_at = now
        self._task = asyncio.create_task(self._look(), name="telemetry scrape")
        return self._task

    def _pause(self, in_use: bool) -> float:
        """Return the seconds between two scrapes, at least; 0 leaves it to the ticks."""
        if self._failures >= FAILURES:
            return BACK_OFF_S
        return REST_S if not in_use and self._error is None and self._history.rests else 0.0

    async def begin(self) -> None:
        """Scrape now and start all figures over; waits BEGIN_S at most."""
        self._history, self._last, self._figures = EngineHistory(self._totals), None, EngineFigures()
        self._recognise_at = -math.inf
        if task := self.ask():
            await asyncio.wait({task}, timeout=BEGIN_S)

    def sample(self) -> EngineSample | None:
        """Values and time of the last answer, with the error since; None for a server without figures."""
        error = self._error
        if self._names is None and error is None:
            return None
        if self._task is not None and not self._task.done():
            error = error or f"no answer for {self._monotonic() - self._asked_at:.1f} s"
        known = self._last or EngineSample(at=self._clock())
        return known.replace(error=error)

    def figures(self) -> EngineFigures | None:
        """Raw figures of the last answer, and the start of the silence since; None for a server without figures."""
        if self._names is None:
            return None
        told = self._figures
        if told.unanswered_since is None and self._task is not None and not self._task.done():
            return replace(told, unanswered_since=self._asked_at)
        return told

    @property
    def is_live(self) -> bool:
        """Whether the figures move while a request runs; True while unknown."""
        return self._names is None or self._names.is_live

    async def close(self) -> None:
        await cancelled(self._task)

    async def _look(self) -> None:
        asked_at = self._asked_at
        try:
            await self._read()
        except UpstreamError as error:
            self._failed(str(error))
            if self._figures.unanswered_since is None:
                self._figures = replace(self._figures, unanswered_since=asked_at)
        except Unreadable as error:
            self._failed(str(error))
            self._figures = replace(self._figures, unanswered_since=None)
            if self._is_foreign and isinstance(error, Vanished):
                self._names, self._history = None, EngineHistory(self._totals)
                self._reader = self._read_last = None
        except Exception as error:
            LOG.exception("scrape failed", url=self._url)
            self._failed(f"{type(error).__name__} while reading the engine's figures")
        else:
            self._failures, self._error = 0, None

    def _failed(self, why: str) -> None:
        self._failures += 1
        self._totals.failed_scrapes += 1
        self._error = why

    async def _read(self) -> None:
        names = self._names = self._names or await self._recognise()
        if names is None:
            return
        at, unix = self._monotonic(), self._clock()
        scrape = await self._scrape(names)
        if self._read_last is None or self._read_last[0] is not scrape:
            self._read_last = scrape, reading_of(at, scrape, names)
        reading = await self._with_health(replace(self._read_last[1], at=at), names)
        # Slots after the counters, never before them: SlotTally relies on that order. Builds before summer 2026 log
        # each request for slots, so an idle engine is not asked.
        live = self._idle_slots if self._idle_slots and reading.gauges.running == 0 else await self._slots(names)
        self._idle_slots = live and live.idle()
        reading = replace(reading, took=self._monotonic() - at)
        self._totals.scrapes.observe(reading.took)
        before, self._skew = self._skew, unix - at
        leapt = before is not None and abs(self._skew - before) > LEAP_S
        self._history.add(reading, live, leapt=leapt)
        derived = self._history.derive()
        self._last = EngineSample(
            at=unix,
            rate_s=derived.rate_s,
            window_s=derived.window_s,
            values=derived.values,
            acceptance_at=derived.acceptance_at,
        )
        if told := self._history.last:
            self._figures = figures_of(told, names, self._figures)

    async def _recognise(self) -> MetricNames | None:
        """Detect which engine's figures the server has, if any; repeated, as it may be restarted with metrics."""
        if self._monotonic() < self._recognise_at:
            return None
        self._recognise_at = self._monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, RECOGNISE_S[1])
        for path in registry.METRIC_PATHS:
            reply = await self._get(path)
            text = reply.body.decode("utf-8", "replace") if reply.status == 200 else ""
            if names := registry.recognise_exposition(path, text):
                self._pause_s = RECOGNISE_S[0]
                return names
            if text.lstrip().startswith("["):  # reading TensorRT-LLM's JSON consumes it, and another client may need it
                self._recognise_at = math.inf
        return None

    async def _scrape(self, names: MetricNames) -> exposition.Scrape:
        if names.path is None:
            return exposition.EMPTY
        reply = await self._get(names.path)
        if reply.status != 200:
            kind = Vanished if reply.status == NOT_FOUND else Unreadable
            raise kind(f"GET {names.path} answered {reply.status}")
        if self._reader is None:
            self._reader = exposition.ExpositionReader(sample_names(names))
        scrape = self._reader.read(reply.body.decode("utf-8", "replace"))
        if not scrape.samples:
            raise Vanished(f"GET {names.path} holds none of the figures that sparkdash knows")
        return scrape

    async def _slots(self, names: MetricNames) -> Slots | None:
        if names.slots is None:
            return None
        reply = await self._get(names.slots)
        if reply.status == NOT_IMPLEMENTED or 400 <= reply.status < 500:
            return None
        found = parse_slots(reply.body) if reply.status == 200 else None
        if found is None:
            raise Unreadable(f"GET {names.slots} answered {reply.status} and no list of slots")
        return found

    async def _with_health(self, reading: Reading, names: MetricNames) -> Reading:
        if names.health is None:
            return reading
        reply = await self._get(names.health)
        if reply.status != 200:
            raise Unreadable(f"GET {names.health} answered {reply.status}")
        return reading.with_health(reply.body)

    async def _get(self, path: str) -> SmallResponse:
        return await self._upstream.get(self._url + path, timeout_s=ANSWER_S)


async def cancelled(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task, and wait for its end."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def identity(engine: Engine) -> tuple[object, ...]:
    """Key of one incarnation: several engines may have the same port, one after another."""
    return engine.kind, engine.url, engine.container, engine.fingerprint
