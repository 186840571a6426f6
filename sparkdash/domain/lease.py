"""Ticket and lease: one request's claim on an engine, and the row that people see of it."""

from __future__ import annotations

from dataclasses import KW_ONLY
from enum import StrEnum
from typing import ClassVar

from pydantic import ConfigDict

from sparkdash.domain.base import STRICT, per_request

LEASE_HEADER = "x-sparkdash-lease"
"""Carries the token of whoever has the gateway to itself on each of its requests; it reaches no engine."""

ASIDES = frozenset(
    (
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/props",
        "/slots",
        "/v1/messages/count_tokens",
        "/v1/responses/input_tokens",
    )
)
"""Routes on which an engine is asked something beside its work, and by some clients before each request."""


class RequestState(StrEnum):
    """Where a request is."""

    WAITING = "waiting"
    """No engine yet: queued behind others or behind a swap."""
    PREFILL = "prefill"
    """Sent to the engine, no answer byte yet."""
    STREAMING = "streaming"
    DONE = "done"
    FAILED = "failed"
    GONE = "gone"
    """The client left."""


@per_request
class Request:
    """One request as the gateway saw it. Times are Unix seconds, durations seconds, rates tokens per second."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    _: KW_ONLY

    id: str
    client: str
    """Short name made from the User-Agent, never an address or a key."""
    key: str | None = None
    """Name of the access key that it came with; None when none was asked for."""
    profile: str
    route: str
    state: RequestState
    started_at: float
    stream: bool = False
    position: int | None = None
    """Place in the queue, 1 is next; None when it does not wait."""
    granted_at: float | None = None
    finished_at: float | None = None
    status: int | None = None
    ttft_s: float | None = None
    """From the moment that the request was sent to the engine to the first event that carries text, reasoning or a tool call; waiting for a swap is not in it."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    """Part of the completion, where the engine counts them."""
    decode_tok_s: float | None = None
    """(completion tokens - 1) / (last - first text-bearing event), counted by the engine's own usage."""
    finish_reason: str | None = None
    error: str | None = None
    """The error's code, never the prompt."""
    internal: bool = False
    """Made by sparkdash itself: the demo's traffic."""
