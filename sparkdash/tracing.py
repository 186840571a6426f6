"""Traces of requests for OpenTelemetry, where a collector is named by its own variables.

Names and attributes follow the conventions for generative AI (semantic conventions 1.38, in development).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from sparkdash import __version__
from sparkdash.domain.event import Fact, Level, Notice
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Swap
from sparkdash.log import LOG
from sparkdash.paths import install_command

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
CLOSE_S = 2.0
"""Longest wait for the last spans when the daemon ends."""
MOST_WAITING = 4096
"""Requests that wait for the thread; further ones are not traced."""
NS = 1_000_000_000
OPERATIONS = {
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
    "/completion": "text_completion",
    "/infill": "text_completion",
}
"""Operations that the conventions name otherwise than `chat`."""
CHATS = frozenset({"/v1/chat/completions", "/v1/responses", "/v1/messages"})
LEAST_WAIT_S = 0.001
"""Shorter waits get no span."""
Value = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True)
class PlannedSpan:
    """Span with its children. Times are Unix seconds."""

    name: str
    start: float
    end: float
    attributes: Mapping[str, Value] = field(default_factory=dict)
    children: tuple[PlannedSpan, ...] = ()
    error: str | None = None
    traceparent: str | None = None
    """Span of the client above it; its flag says whether the trace is recorded."""


def plan_spans(request: Request, *, provider: str | None, swap: Swap | None) -> PlannedSpan:
    """Plan the span of an ended request. `provider`: kind of its engine; `swap`: the swap that it waited for."""
    end = request.finished_at if request.finished_at is not None else request.started_at
    operation = OPERATIONS.get(request.route) or ("chat" if request.route in CHATS else "request")
    failed = request.state is RequestState.FAILED
    return PlannedSpan(
        f"{operation} {request.profile}",
        request.started_at,
        end,
        {key: value for key, value in _attributes(request, operation, provider) if value is not None},
        tuple(_children(request, end, swap)),
        (request.error or "error") if failed else None,
        request.traceparent,
    )


def _attributes(request: Request, operation: str, provider: str | None) -> Iterator[tuple[str, Value | None]]:
    yield "gen_ai.operation.name", operation
    yield "gen_ai.provider.name", provider
    yield "gen_ai.request.model", request.profile
    yield "gen_ai.request.stream", request.stream
    yield "gen_ai.response.model", None if request.granted_at is None else request.profile
    yield "gen_ai.response.finish_reasons", None if request.finish_reason is None else (request.finish_reason,)
    yield "gen_ai.response.time_to_first_chunk", request.ttft_s
    yield "gen_ai.usage.input_tokens", request.prompt_tokens
    yield "gen_ai.usage.cache_read.input_tokens", request.cached_tokens
    yield "gen_ai.usage.output_tokens", request.completion_tokens
    yield "gen_ai.usage.reasoning.output_tokens", request.reasoning_tokens
    yield "http.response.status_code", request.status
    yield "http.route", request.route
    yield "error.type", request.error if request.state is RequestState.FAILED else None
    yield "sparkdash.request.id", request.id
    yield "sparkdash.client", request.client
    yield "session.id", request.session
    yield "sparkdash.client_left", True if request.state is RequestState.GONE else None


def _children(request: Request, end: float, swap: Swap | None) -> Iterator[PlannedSpan]:
    granted = request.granted_at
    waited_until = end if granted is None else granted
    if waited_until - request.started_at >= LEAST_WAIT_S:
        stages = tuple(_stages(swap, request.started_at, waited_until)) if swap is not None else ()
        yield PlannedSpan("wait", request.started_at, waited_until, {}, stages)
    if granted is None:
        return
    first = end if request.ttft_s is None else min(granted + request.ttft_s, end)
    yield PlannedSpan("prefill", granted, first)
    if request.ttft_s is not None:
        yield PlannedSpan("decode", first, end)


def _stages(swap: Swap, start: float, end: float) -> Iterator[PlannedSpan]:
    """Plan one span for each stage of the swap, cut to the request's wait."""
    began = swap.started_at
    for phase, seconds in swap.stage_s.items():
        low, high = max(began, start), min(began + seconds, end)
        began += seconds
        if high > low:
            attributes: dict[str, Value] = {"sparkdash.swap.id": swap.id, "sparkdash.swap.stage": phase.value}
            yield PlannedSpan(f"swap {phase}", low, high, attributes)


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
        self.is_on = self._writer is not None
        self._thread = ThreadPoolExecutor(1, "traces")
        self._waiting = 0

    def record(self, request: Request) -> None:
        """Trace an ended request, in a thread: the SDK takes a quarter of a millisecond for its spans."""
        if self._writer is None or self._waiting >= MOST_WAITING:
            return
        snapshot = self._snapshot()
        engine = snapshot.engines.get(request.profile)
        plan = partial(plan_spans, request, provider=engine.kind if engine else None, swap=_swap_of(request, snapshot))
        self._waiting += 1
        self._thread.submit(self._write, self._writer, plan)

    def _write(self, writer: OtlpWriter, plan: Callable[[], PlannedSpan]) -> None:
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

    def _close(self, writer: OtlpWriter) -> None:
        self._thread.shutdown()
        writer.close()


def _writer(publish: Callable[[Fact], object]) -> OtlpWriter | None:
    try:
        return OtlpWriter(__version__)
    except ImportError as error:
        text = f"Traces are wanted, and OpenTelemetry's SDK is not installed ({error.name}): {install_command('otel')}."
        LOG.warning(text)
        publish(Notice(level=Level.WARNING, code="otel_missing", text=text))
        return None


def _swap_of(request: Request, snapshot: Snapshot) -> Swap | None:
    """Find the swap to the request's profile that its wait overlaps."""
    waited_until = request.granted_at or request.finished_at or request.started_at
    for swap in (*snapshot.swaps_under_way, *snapshot.swaps):
        if swap.target == request.profile and swap.started_at < waited_until:
            return swap if swap.ended_at is None or swap.ended_at > request.started_at else None
    return None


class OtlpWriter:
    """Writes planned spans with the SDK's batch processor. `version` is sparkdash's.

    Address, headers, timeouts and resource come from OpenTelemetry's own variables; sending happens in a thread of the
    SDK, which is loaded here (180 ms, 22 MB).
    """

    def __init__(self, version: str) -> None:
        """Raises ImportError without the SDK."""
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        # our name is the weaker one: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
        own = Resource({"service.name": "sparkdash", "service.version": version})
        told = dict(Resource.create().attributes)
        if str(told.get("service.name")).startswith("unknown_service"):
            del told["service.name"]
        self._trace, self._client_span = trace, TraceContextTextMapPropagator().extract
        self._provider = TracerProvider(resource=own.merge(Resource(told)), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("sparkdash", version)

    def write(self, span: PlannedSpan) -> None:
        above = self._client_span({"traceparent": span.traceparent}) if span.traceparent else None
        self._write(span, above, self._trace.SpanKind.SERVER)

    def close(self) -> None:
        """Send what is queued, and end the SDK's thread; may wait for seconds."""
        self._provider.shutdown()

    def _write(self, planned: PlannedSpan, parent: object, kind: Any) -> None:
        trace = self._trace
        begun = self._tracer.start_span(
            planned.name,
            context=parent,  # type: ignore[arg-type]
            kind=kind,
            attributes=dict(planned.attributes),
            start_time=int(planned.start * NS),
        )
        if planned.error is not None:
            begun.set_status(trace.Status(trace.StatusCode.ERROR, planned.error))
        for child in planned.children:
            self._write(child, trace.set_span_in_context(begun), trace.SpanKind.INTERNAL)
        begun.end(int(planned.end * NS))
