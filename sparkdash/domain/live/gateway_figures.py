"""GatewayFigures, LiveRequest, TrafficLook: what the gateway counts of the answers that pass through it.

Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from sparkdash.domain.base import Frozen
from sparkdash.domain.live.energy import Energy


class GatewayFigures(Frozen):
    """Figures of one profile by the gateway's own count: what passed through it, and nothing else.

    Counters begin with the daemon.
    """

    in_flight: int = 0
    """Requests that were sent to the engine and have not ended."""
    waiting: int = 0
    """Requests that wait for the engine at the gateway."""
    decode_tok_s: float | None = None
    """Output tokens of all running requests together / wall time, over the last seconds."""
    rate_s: float | None = None
    """Seconds until the sample's time that `decode_tok_s` covers."""
    decode_each_tok_s: float | None = None
    """The same / number of requests that decode."""
    prompt_tok_s: float | None = None
    """Prompt tokens that were not cached / time from sending to the first text, of requests of the last 60 s."""
    ttft_p50_s: float | None = None
    """Time from sending to the first text, of requests of the last 60 s."""
    ttft_p95_s: float | None = None
    requests: int = 0
    """Ended requests, failed ones included."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    """Tokens of ended requests, by the engine's own usage."""
    energy_wh: float | None = None
    """Energy while requests of the profile ran, shared by tokens with other profiles; None without a sensor."""
    wh_per_1k: float | None = None
    """Energy / output tokens x 1000, over the same time; None without a sensor or tokens."""


class LiveRequest(Frozen):
    """Progress of one running request at one tick, as far as its answer has passed through the gateway."""

    profile: str
    output_tokens: int | None = None
    """Output tokens so far; None for an answer that does not come as a stream."""
    estimated: bool = True
    """Whether the tokens are estimated from the answer's events; False: the engine counts in each event."""
    tok_s: float | None = None
    """Output tokens per second over the last `rate_s` seconds; None before the second tick with text."""
    rate_s: float | None = None
    """Seconds that the rate covers, up to the sample's time."""
    silent_s: float | None = None
    """Seconds since the last piece of the answer that shows work; None before the first."""


class TrafficLook(NamedTuple):
    """All that the gateway tells of one tick."""

    requests: dict[str, LiveRequest]
    """Progress of the running requests, by id."""
    profiles: dict[str, GatewayFigures]
    energy: Energy | None
