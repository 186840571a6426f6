"""RequestTracer: hands the spans of ended requests to OpenTelemetry.

Owns: whether traces are wanted, by OpenTelemetry's own variables, and the swap that a request waited for. Must not know
names of attributes.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, Self

import structlog

from sparkdash import __version__
from sparkdash.domain.event import Fact, Level, Notice
from sparkdash.domain.lease import Request
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Swap
from sparkdash.tracing.span_plan import PlannedSpan, plan_spans

LOG = structlog.get_logger("sparkdash.tracing")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
CLOSE_S = 2.0
"""Longest wait for the last spans when the daemon ends."""
MOST_WAITING = 4096
"""Requests that wait for the thread; further ones are not traced."""
EXTRA = "pip install 'sparkdash[otel]'"


class SpanWriter(Protocol):
    """Sends spans to a collector."""

    def write(self, span: PlannedSpan) -> None:
        """Queue a span with its children; never waits."""
        ...

    def close(self) -> None:
        """Send what is queued; may wait for seconds."""
        ...


def traces_wanted() -> bool:
    """Whether the environment names a collector, and does not switch the SDK off."""
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(os.environ.get(name) for name in ENDPOINTS)


class RequestTracer:
    """Traces of one daemon; does nothing where no collector is named."""

    def __init__(self, snapshot: Callable[[], Snapshot], publish: Callable[[Fact], object]) -> None:
        self._snapshot = snapshot
        self._writer = _writer(publish) if traces_wanted() else None
        self._thread = ThreadPoolExecutor(1, "traces")
        self._waiting = 0
        """Requests that the thread has not taken yet."""

    def record(self, request: Request) -> None:
        """Trace an ended request, in a thread: the SDK takes a quarter of a millisecond for its spans."""
        if self._writer is None or self._waiting >= MOST_WAITING:
            return
        snapshot = self._snapshot()
        engine = snapshot.engines.get(request.profile)
        plan = partial(plan_spans, request, provider=engine.kind if engine else None, swap=_swap_of(request, snapshot))
        self._waiting += 1
        self._thread.submit(self._write, self._writer, plan)

    def _write(self, writer: SpanWriter, plan: Callable[[], PlannedSpan]) -> None:
        self._waiting -= 1
        writer.write(plan())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Send the last spans, within CLOSE_S: a collector that is gone must not hold up the daemon's end."""
        if self._writer is not None:
            closing = threading.Thread(target=self._close, args=(self._writer,), name="traces end", daemon=True)
            closing.start()
            await asyncio.to_thread(closing.join, CLOSE_S)

    def _close(self, writer: SpanWriter) -> None:
        self._thread.shutdown()
        writer.close()


def _writer(publish: Callable[[Fact], object]) -> SpanWriter | None:
    try:
        from sparkdash.tracing.otlp import OtlpWriter
    except ImportError as error:
        text = f"Traces are wanted, and OpenTelemetry's SDK is not installed ({error.name}): {EXTRA}."
        LOG.warning(text)
        publish(Notice(level=Level.WARNING, code="otel_missing", text=text))
        return None
    return OtlpWriter(__version__)


def _swap_of(request: Request, snapshot: Snapshot) -> Swap | None:
    """Find the swap to the request's profile that its wait overlaps."""
    waited_until = request.granted_at or request.finished_at or request.started_at
    for swap in (*snapshot.swaps_under_way, *snapshot.swaps):
        if swap.target == request.profile and swap.started_at < waited_until:
            return swap if swap.ended_at is None or swap.ended_at > request.started_at else None
    return None
