"""Requests as people see them, and the routes and header of a lease.

Pure.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from enum import StrEnum
from typing import ClassVar

from pydantic import ConfigDict

from sparkdash.domain.base import STRICT, per_request

LEASE_HEADER = "x-sparkdash-lease"
"""Request header with the token of an exclusive lease of the gateway; never forwarded to an engine."""

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
"""Routes that ask an engine something beside its work; some clients call them before each request."""


class RequestState(StrEnum):
    """Progress of a request."""

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
    """A request as the gateway saw it. Times are Unix seconds, durations seconds, rates tokens per second."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    _: KW_ONLY

    id: str
    client: str
    """Short name made from the User-Agent, never an address or a key."""
    key: str | None = None
    """Name of the access key; None where none is required."""
    profile: str
    route: str
    state: RequestState
    started_at: float
    stream: bool = False
    node: str | None = None
    """Node whose engine serves the request, the head's of several; None while it waits, and for a
    server that sparkdash did not start.
    """
    position: int | None = None
    """Position in the queue, 1 is next; None when the request does not wait."""
    granted_at: float | None = None
    finished_at: float | None = None
    status: int | None = None
    ttft_s: float | None = None
    """Time from sending the request to the engine until the first event with text, reasoning or a tool call. Waiting
    for a swap is not included.
    """
    prompt_estimate: int | None = None
    """Prompt tokens estimated from the size of the body, to be shown as "~" until the usage is known; None for a body
    with pictures or sound.
    """
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    completion_estimate: int | None = None
    """Output tokens of a stream that ended before the engine counted them, as when the client left: estimated from its
    events, to be shown as "~".
    """
    reasoning_tokens: int | None = None
    """Reasoning tokens within the completion, where the engine counts them."""
    decode_tok_s: float | None = None
    """Decode rate: (completion tokens - 1) / (last - first text-bearing event), by the engine's own usage."""
    finish_reason: str | None = None
    error: str | None = None
    """Code of the error, never the prompt."""
    energy_wh: float | None = None
    """Energy of the request: the box's power over its time, shared by tokens among the requests that ran. None without
    a sensor, and for a request shorter than two samples of the power.
    """
    internal: bool = False
    """Whether sparkdash itself made the request: the demo's traffic."""
