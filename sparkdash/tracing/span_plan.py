"""Spans of one request, planned from its row once it has ended.

Owns: names and attributes, by OpenTelemetry's conventions for generative AI (semantic conventions 1.38, in
development). Must not know OpenTelemetry's library.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sparkdash.domain.lease import Request, RequestState
from sparkdash.domain.swap import Swap

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
    """Description of a failure; None for a success."""


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
