"""TrafficMeter: what the gateway itself counts of the requests that pass through it.

Must not know HTTP or telemetry's loop. Rule: nothing happens per chunk. Answers are looked at when the sampler asks
(`look`), and at their end.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from sparkdash.domain.metric import GatewayFigures, LiveRequest, TrafficLook
from sparkdash.domain.request import ASIDES
from sparkdash.gateway.protocol.tap import Tap, TokenUsage
from sparkdash.telemetry.power import JOULES_PER_WH, EnergyMeter, EnergyUse, Power

FIRST_BYTES = 4.0
"""Bytes of a body per prompt token before anything was learned."""
FIRST_EVENTS = 1.0
"""Tokens per event before anything was learned: engines without speculation send one for each."""
LEARNS = 0.3
"""Weight of the newest request beside earlier ones."""
LEAST_TOKENS = 16
"""Tokens that a request must have to be learned from."""
ENCODED = b";base64,"
"""Sign of a picture or a sound in a body, whose bytes say nothing of tokens."""


class TokenEstimates:
    """Ratios of one profile."""

    __slots__ = ("_bytes_per_token", "_tokens_per_event")

    def __init__(self) -> None:
        self._tokens_per_event: float | None = None
        self._bytes_per_token: float | None = None

    def output_tokens(self, events: int) -> int:
        return round(events * (self._tokens_per_event or FIRST_EVENTS))

    def prompt_tokens(self, body_bytes: int) -> int:
        return max(1, round(body_bytes / (self._bytes_per_token or FIRST_BYTES)))

    def learn_output(self, events: int, tokens: int) -> None:
        if events > 0:
            self._tokens_per_event = _learned(self._tokens_per_event, tokens / events)

    def learn_prompt(self, bytes_per_token: float) -> None:
        """Learn from a body whose prompt was counted."""
        self._bytes_per_token = _learned(self._bytes_per_token, bytes_per_token)


def _learned(before: float | None, seen: float) -> float:
    return seen if before is None else before + LEARNS * (seen - before)


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
        self._firsts.append((now, ttft_s))

    def add(
        self, now: float, request: "MeteredRequest", tokens: int | None, usage: TokenUsage | None, ttft_s: float | None
    ) -> None:
        """Add an ended request. `tokens`: of its output, counted or estimated; `usage`: the engine's own counts."""
        self._requests += 1
        if request.answer is not None:
            self._produced += tokens or 0
        elif tokens and request.sent_at is not None and now > request.sent_at:
            took = now - request.sent_at
            self._late.append((now + min(took, LATE_S), tokens / took))
        if usage is not None:
            self._count(now, request, usage, ttft_s)

    def _count(self, now: float, request: "MeteredRequest", usage: TokenUsage, ttft_s: float | None) -> None:
        self._prompt += usage.prompt or 0
        self._cached += usage.cached or 0
        self._output += usage.completion or 0
        if usage.prompt is not None:
            if usage.cached is not None and ttft_s:
                self._prompts.append((now, max(0, usage.prompt - usage.cached), ttft_s))
            if usage.prompt >= LEAST_TOKENS and request.body_bytes:
                self.estimates.learn_prompt(request.body_bytes / usage.prompt)
        if request.answer is not None and usage.completion is not None and usage.completion >= LEAST_TOKENS:
            self.estimates.learn_output(request.answer.text_events, usage.completion)

    def used(self, energy_wh: float, tokens: float) -> None:
        """Add energy, and the output tokens of the same time."""
        self._energy_wh = (self._energy_wh or 0.0) + energy_wh
        self._energy_tokens += tokens

    def figures(self, now: float, running: Sequence[LiveRequest], waiting: int) -> GatewayFigures:
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


EACH_S = 3.0
"""Window of one request's rate."""
LEAST_S = 0.2
"""Shortest time that gives a rate: the first tokens of an instant are none."""


_RequestUse = tuple[str, float, float, float, float]
"""Use of the box by one request since the last look: profile, begin, end, and its output tokens of that time; as they
came, and for the energy."""


class MeteredRequest:
    """Counts of a request from its arrival to its end."""

    __slots__ = (
        "_meter", "_points", "_tokens_before", "answer", "body_bytes", "energy_j", "first_at", "id", "is_here",
        "looks", "profile", "sent_at",
    )  # fmt: skip

    def __init__(self, meter: "TrafficMeter", request_id: str, profile: str) -> None:
        self._meter = meter
        self.body_bytes = 0
        """Bytes of the body; 0 where they say nothing of the prompt's tokens."""
        self._points: list[tuple[float, int]] = []
        self._tokens_before = 0
        self.id = request_id
        self.profile = profile
        self.answer: Tap | None = None
        """The answer, if it is a stream."""
        self.sent_at: float | None = None
        """Time of the grant; None while the request waits."""
        self.is_here = True
        """Whether this box does the work."""
        self.first_at: float | None = None
        self.energy_j: float | None = None
        self.looks = 0
        """Samples of the power within its life."""

    def prompt_estimate(self) -> int | None:
        return self._meter.estimates(self.profile).prompt_tokens(self.body_bytes) if self.body_bytes else None

    def granted(self, profile: str, *, here: bool = True) -> None:
        """Mark it sent to the engine of this profile. `here`: the engine runs on this box."""
        self.profile, self.sent_at, self.is_here = profile, self._meter.monotonic(), here

    def requeued(self) -> None:
        self.sent_at = self.first_at = self.answer = None
        self._points.clear()
        self._tokens_before = 0

    def began_text(self, ttft_s: float) -> None:
        self.first_at = now = self._meter.monotonic()
        self._meter.profile(self.profile).began_text(now, ttft_s)

    def tokens(self) -> tuple[int | None, bool]:
        """Return the output tokens so far, and whether they are estimated; None without a stream."""
        if self.answer is None:
            return None, True
        told = self.answer.told_so_far()
        if told is not None:
            return told, False
        return self._meter.estimates(self.profile).output_tokens(self.answer.text_events), True

    def used(self, joules: float | None) -> None:
        """Add the energy between two looks; once unknown (None), the sum stays unknown."""
        if joules is None and self.looks:
            self.energy_j = None  # a gap: the rest would look like all of it
        elif joules is not None and (self.energy_j is not None or not self.looks):
            self.energy_j = (self.energy_j or 0.0) + joules
        self.looks += 1

    def look(self, now: float) -> LiveRequest:
        """Return the progress as of `now`, and remember it for the rate."""
        tokens, estimated = self.tokens()
        heard = self.answer.heard_at if self.answer is not None else None
        rate = covers = None
        if tokens is not None and self.first_at is not None:
            base = min(self._points, key=lambda point: abs(now - point[0] - EACH_S), default=(self.first_at, 1))
            covers = now - base[0] if now - base[0] >= LEAST_S else None
            rate = None if covers is None else max(0.0, tokens - base[1]) / covers
            self._points = [*self._points[1 - POINTS :], (now, tokens)]
        silent = None if heard is None else max(0.0, now - heard)
        return LiveRequest(
            profile=self.profile, output_tokens=tokens, estimated=estimated, tok_s=rate, rate_s=covers, silent_s=silent
        )

    def gained(self, tokens: int | None) -> float:
        """Return the tokens since the last call, for the division of energy."""
        known = tokens or 0
        gain, self._tokens_before = max(0, known - self._tokens_before), max(known, self._tokens_before)
        return float(gain)


class TrafficMeter:
    """Counts of all requests of one gateway. `monotonic`: the clock of the taps."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._open: dict[str, MeteredRequest] = {}
        self._ended: dict[str, _RequestUse] = {}
        self._profiles: dict[str, ProfileTraffic] = {}
        self._energy = EnergyMeter()

    def profile(self, name: str) -> ProfileTraffic:
        found = self._profiles.get(name)
        if found is None:
            found = self._profiles[name] = ProfileTraffic()
        return found

    def estimates(self, name: str) -> TokenEstimates:
        """Return the ratios of one profile. A name that was never granted, as a typing error, has the first ones."""
        found = self._profiles.get(name)
        return found.estimates if found is not None else TokenEstimates()

    def begin(self, request_id: str, profile: str, route: str) -> MeteredRequest:
        """Count a request from now on. Requests beside an engine's work (`ASIDES`) are no traffic."""
        request = MeteredRequest(self, request_id, profile)
        if route not in ASIDES:
            self._open[request_id] = request
        return request

    def end(
        self, request: MeteredRequest, usage: TokenUsage | None, ttft_s: float | None, estimate: int | None = None
    ) -> float | None:
        """Count an ended request; return its energy in Wh. `estimate`: output tokens that the engine did not count."""
        if self._open.pop(request.id, None) is None or request.sent_at is None:
            return None
        now = self.monotonic()
        tokens = usage.completion if usage is not None and usage.completion is not None else estimate
        if request.is_here:
            gain = request.gained(tokens)
            # without a stream, all of its tokens would come at its end
            counted = 0.0 if request.answer is None else gain
            self._ended[request.id] = request.profile, request.sent_at, now, gain, counted
        self.profile(request.profile).add(now, request, tokens, usage, ttft_s)
        return None if request.energy_j is None else self._energy_of(request.energy_j, now)

    def look(self, now: float, unix: float, power: Power | None, *, busy: bool = False) -> TrafficLook:
        """Return the figures as of `now`. `power`: the box's power; `busy`: an engine works, for whomever."""
        sent = {number: each for number, each in self._open.items() if each.sent_at is not None}
        requests = {number: each.look(now) for number, each in sent.items()}
        here = {number: each for number, each in sent.items() if each.is_here}
        self._share_energy(now, unix, power, here, requests, busy=busy)
        profiles = {name: self._figures(name, kept, now, requests) for name, kept in self._profiles.items()}
        return TrafficLook(requests, profiles, self._energy.energy)

    def _figures(
        self, name: str, kept: ProfileTraffic, now: float, requests: Mapping[str, LiveRequest]
    ) -> GatewayFigures:
        mine = [each for each in requests.values() if each.profile == name]
        waiting = sum(each.profile == name and each.sent_at is None for each in self._open.values())
        return kept.figures(now, mine, waiting)

    def _share_energy(
        self,
        now: float,
        unix: float,
        power: Power | None,
        sent: Mapping[str, MeteredRequest],
        requests: Mapping[str, LiveRequest],
        *,
        busy: bool,
    ) -> None:
        """Give each request and profile its energy since the last look."""
        used = dict(self._ended)
        for number, each in sent.items():
            gain = each.gained(requests[number].output_tokens)
            used[number] = each.profile, each.sent_at or now, now, gain, gain
        uses = {number: EnergyUse(since, until, counted) for number, (_, since, until, _, counted) in used.items()}
        shares = self._energy.add(now, unix, power, uses, busy=busy)
        self._ended = {}
        if shares is not None:
            for number, (name, _, _, tokens, _) in used.items():
                self.profile(name).used(shares[number] / JOULES_PER_WH, tokens)
        for number, each in sent.items():
            each.used(None if shares is None else shares[number])

    def _energy_of(self, energy_j: float, now: float) -> float | None:
        """Return the Wh of a request that ends: what was integrated, and the rest at the last power."""
        rest = self._energy.since_sample(now)
        if rest is None:
            return None
        running = 1 + sum(each.sent_at is not None and each.is_here for each in self._open.values())
        return (energy_j + rest / running) / JOULES_PER_WH
