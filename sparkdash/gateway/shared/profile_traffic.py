"""ProfileTraffic: counters and rates of one profile, by what passed through the gateway.

Owns: the windows and formulas. Must not know single requests beyond their figures, nor clocks: times are monotonic
seconds and come in.

An answer that does not come as a stream tells its tokens at its end alone. Then its own mean rate counts for as long
as it took, at most LATE_S: with steady traffic that is the true rate, and never a burst that no engine reaches.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sparkdash.domain.metric import GatewayFigures, LiveRequest
from sparkdash.gateway.protocol.counts import TokenUsage
from sparkdash.gateway.shared.token_estimates import TokenEstimates

RATE_S = 2.0
"""Window of the decode rate, as of an engine's own."""
WINDOW_S = 60.0
"""Window of first-token times and of the prompt speed."""
LATE_S = 10.0
"""Longest time for which a rate without a stream counts after its end."""
POINTS = 64
FIRSTS = 2000


class ProfileTraffic:
    """Counts since the daemon started."""

    def __init__(self) -> None:
        self.estimates = TokenEstimates()
        self._requests = self._prompt = self._cached = self._output = 0
        self._produced = 0.0
        """Tokens of ended streams."""
        self._points: deque[tuple[float, float]] = deque(maxlen=POINTS)
        self._late: list[tuple[float, float]] = []
        """Until when, and the rate, of ended answers without a stream."""
        self._firsts: deque[tuple[float, float]] = deque(maxlen=FIRSTS)
        self._prompts: deque[tuple[float, int, float]] = deque(maxlen=FIRSTS)
        """When, computed tokens, seconds."""
        self._energy_wh: float | None = None
        self._energy_tokens = 0.0

    def began_text(self, now: float, ttft_s: float) -> None:
        """Note a time to first token."""
        self._firsts.append((now, ttft_s))

    def ended(self, now: float, sent_at: float, tokens: int | None, *, is_stream: bool) -> None:
        """Note an ended answer."""
        self._requests += 1
        if is_stream:
            self._produced += tokens or 0
        elif tokens and now > sent_at:
            took = now - sent_at
            self._late.append((now + min(took, LATE_S), tokens / took))

    def count(self, now: float, usage: TokenUsage, ttft_s: float | None) -> None:
        """Add the engine's counts of an ended answer."""
        self._prompt += usage.prompt or 0
        self._cached += usage.cached or 0
        self._output += usage.completion or 0
        if usage.prompt is not None and usage.cached is not None and ttft_s:
            self._prompts.append((now, max(0, usage.prompt - usage.cached), ttft_s))

    def used(self, energy_wh: float, tokens: float) -> None:
        """Add energy, and the output tokens of the same time."""
        self._energy_wh = (self._energy_wh or 0.0) + energy_wh
        self._energy_tokens += tokens

    def figures(self, now: float, running: Sequence[LiveRequest], waiting: int) -> GatewayFigures:
        """Return the figures as of `now`; `running` are the profile's running requests."""
        rates = [each.tok_s for each in running if each.tok_s is not None]
        since = self._rate_base(now)
        ttfts = sorted(ttft for at, ttft in self._firsts if at > now - WINDOW_S)
        return GatewayFigures(
            in_flight=len(running),
            waiting=waiting,
            decode_tok_s=self._decode(now, running),
            rate_s=None if since is None or now <= since[0] else now - since[0],
            decode_each_tok_s=sum(rates) / len(rates) if rates else None,
            prompt_tok_s=self._prompt_speed(now),
            ttft_p50_s=_quantile(ttfts, 0.50),
            ttft_p95_s=_quantile(ttfts, 0.95),
            requests=self._requests,
            prompt_tokens=self._prompt,
            cached_tokens=self._cached,
            output_tokens=self._output,
            energy_wh=self._energy_wh,
            wh_per_1k=None
            if self._energy_wh is None or not self._energy_tokens
            else 1000 * self._energy_wh / self._energy_tokens,
        )

    def _decode(self, now: float, running: Sequence[LiveRequest]) -> float | None:
        produced = self._produced + sum(each.output_tokens or 0 for each in running)
        base = self._rate_base(now)
        stands_still = not running and (base is None or self._points[-1][1] == produced)
        self._points.append((now, produced))
        late = self._late_rate(now)
        if stands_still:
            return late
        if base is None or now <= base[0]:
            return late or None
        return max(0.0, produced - base[1]) / (now - base[0]) + late

    def _rate_base(self, now: float) -> tuple[float, float] | None:
        return min(self._points, key=lambda point: abs(now - point[0] - RATE_S), default=None)

    def _late_rate(self, now: float) -> float:
        """Add up the rates of ended answers without a stream that still count."""
        self._late = [(until, rate) for until, rate in self._late if until > now]
        return sum(rate for _, rate in self._late)

    def _prompt_speed(self, now: float) -> float | None:
        recent = [(tokens, seconds) for at, tokens, seconds in self._prompts if at > now - WINDOW_S]
        computed, spent = sum(tokens for tokens, _ in recent), sum(seconds for _, seconds in recent)
        return computed / spent if computed and spent > 0 else None


def _quantile(ordered: Sequence[float], q: float) -> float | None:
    """Quantile of sorted values, linear between two of them."""
    if not ordered:
        return None
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
