"""RequestTotals: finished requests of the gateway as counters and histograms. Pure."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from sparkdash.domain.engine import Engine
from sparkdash.domain.memory import Guard
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import ProfileSummary
from sparkdash.domain.request import ASIDES, Request, RequestState
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Swap, SwapPhase
from sparkdash.telemetry.totals import TOKEN_S, EngineTotals, LatencyHistogram

_GONE, _FAILED = RequestState.GONE, RequestState.FAILED
MOST_CLIENTS = 50
"""Names of clients that are told apart; later ones are counted as OTHER."""
OTHER = "other"
LEAST_WAIT_S = 0.01
"""Shorter waits for an engine are no waits: the engine was there."""
FINISHES = frozenset({
    "stop", "length", "tool_calls", "content_filter", "function_call", "end_turn", "max_tokens", "stop_sequence",
    "tool_use", "pause_turn", "refusal", "completed", "incomplete", "eos", "abort",
})  # fmt: skip
"""Words of engines for the end of an answer; any other word is counted as OTHER."""
ROUTES = frozenset({
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/rerank",
    "/v1/score", "/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech", "/v1/images/generations",
    "/v1/images/edits", "/v1/images/variations", "/v1/realtime", "/v2/rerank", "/rerank", "/score", "/infill",
    "/completion", *ASIDES,
})  # fmt: skip
"""Routes that are told apart; any other is counted as OTHER."""


@dataclass(slots=True)
class GatewayTokens:
    """Tokens of one profile's finished requests, by the engines' own counts."""

    output: int = 0
    reasoning: int | None = None
    prompt: int = 0
    cached: int | None = None
    prefill_s: float = 0.0
    """Sum of the times to first token."""


def _by_client() -> defaultdict[tuple[str, str], LatencyHistogram]:
    return defaultdict(LatencyHistogram)


@dataclass
class RequestTotals:
    """Totals since the daemon started. Keys of the tables are the values of the labels, in their order."""

    requests: defaultdict[tuple[str, str, str, str, str], int] = field(default_factory=lambda: defaultdict(int))
    """By profile, client, route, code, finish."""
    durations: defaultdict[tuple[str, str], LatencyHistogram] = field(default_factory=_by_client)
    first_tokens: defaultdict[tuple[str, str], LatencyHistogram] = field(default_factory=_by_client)
    per_token: defaultdict[tuple[str, str], LatencyHistogram] = field(
        default_factory=lambda: defaultdict(lambda: LatencyHistogram(TOKEN_S))
    )
    waits: defaultdict[tuple[str, str], LatencyHistogram] = field(default_factory=_by_client)
    """By profile and reason."""
    tokens: defaultdict[str, GatewayTokens] = field(default_factory=lambda: defaultdict(GatewayTokens))
    clients: set[str] = field(default_factory=set)

    def add(self, request: Request, profile: str, reason: Callable[[str, float, float], str]) -> None:
        """Add an ended request. `profile`: its label; `reason`: tells what a wait for a profile was for."""
        client = request.client
        if client not in self.clients:
            client = self.client_label(client)
        route = request.route if request.route in ROUTES else OTHER
        code = str(request.status or "")
        self.requests[profile, client, route, code, _finish(request)] += 1
        if request.finished_at is not None:
            self.durations[profile, client].observe(request.finished_at - request.started_at)
        if request.ttft_s is not None:
            self.first_tokens[profile, client].observe(request.ttft_s)
        if request.decode_tok_s:
            self.per_token[profile, client].observe(1 / request.decode_tok_s)
        if request.granted_at is not None and request.granted_at - request.started_at >= LEAST_WAIT_S:
            waited_for = reason(profile, request.started_at, request.granted_at)
            self.waits[profile, waited_for].observe(request.granted_at - request.started_at)
        if request.completion_tokens is not None or request.prompt_tokens is not None:
            self._count_tokens(request, self.tokens[profile])

    def copy(self) -> "RequestTotals":
        """Return totals that later requests leave alone, for a thread to write; clients are left out."""
        made = RequestTotals()
        made.requests.update(self.requests)
        for mine, its in (
            (self.durations, made.durations),
            (self.first_tokens, made.first_tokens),
            (self.per_token, made.per_token),
            (self.waits, made.waits),
        ):
            its.update((key, histogram.copy()) for key, histogram in mine.items())
        made.tokens.update((profile, replace(tokens)) for profile, tokens in self.tokens.items())
        return made

    def client_label(self, client: str) -> str:
        """Return the name of a new client, or OTHER once there are too many."""
        if len(self.clients) >= MOST_CLIENTS:
            return OTHER
        self.clients.add(client)
        return client

    @staticmethod
    def _count_tokens(request: Request, tokens: GatewayTokens) -> None:
        tokens.output += request.completion_tokens or 0
        tokens.prompt += request.prompt_tokens or 0
        if request.reasoning_tokens is not None:
            tokens.reasoning = (tokens.reasoning or 0) + request.reasoning_tokens
        if request.cached_tokens is not None:
            tokens.cached = (tokens.cached or 0) + request.cached_tokens
        tokens.prefill_s += request.ttft_s or 0.0


def _finish(request: Request) -> str:
    if request.state is _GONE:
        return "client_left"
    if request.state is _FAILED:
        return "error"
    if request.finish_reason is None:
        return ""
    return request.finish_reason if request.finish_reason in FINISHES else OTHER


REMEMBERED = 64
"""Ended swaps that may explain the wait of a request that ends later, and whose ids are known."""
QUEUE, SWAP, DRAIN, MEMORY = "queue", "swap", "drain", "memory"
WAITS = {SwapPhase.DRAIN: DRAIN, SwapPhase.RECLAIM: MEMORY, SwapPhase.PREFLIGHT: MEMORY}
"""Phases in which requests wait for something else than the load."""


class SwapTotals:
    """Totals since the daemon started."""

    def __init__(self, ended: Iterable[Swap] = ()) -> None:
        self.swaps: defaultdict[tuple[str, str], int] = defaultdict(int)
        """By target and outcome."""
        self.stages: defaultdict[tuple[str, str], LatencyHistogram] = defaultdict(LatencyHistogram)
        """By target and phase."""
        self.kills = 0
        self._last_kill = 0.0
        self._recent: deque[Swap] = deque(ended, maxlen=REMEMBERED)

    def copy(self) -> "SwapTotals":
        """Return counters that later swaps leave alone, for a thread to write."""
        made = SwapTotals()
        made.swaps.update(self.swaps)
        made.stages.update((key, histogram.copy()) for key, histogram in self.stages.items())
        made.kills = self.kills
        return made

    def add(self, swap: Swap) -> None:
        if swap.ended_at is None or any(swap.id == known.id for known in self._recent):
            return
        self._recent.append(swap)
        profile = swap.target or ""
        self.swaps[profile, swap.outcome or ""] += 1
        for phase, seconds in swap.stage_s.items():
            self.stages[profile, phase].observe(seconds)

    def see_guard(self, guard: Guard) -> None:
        new = [kill.at for kill in guard.kills if kill.at > self._last_kill]
        self.kills += len(new)
        self._last_kill = max((self._last_kill, *new))

    def reason(self, profile: str, began: float, ended: float) -> str:
        """Say what a request for this profile waited for between two moments (Unix seconds)."""
        for swap in reversed(self._recent):
            if swap.target == profile and swap.ended_at and swap.started_at < ended and began < swap.ended_at:
                return _longest_wait(swap)
        return QUEUE


def _longest_wait(swap: Swap) -> str:
    for phases, reason in (((SwapPhase.DRAIN,), DRAIN), ((SwapPhase.RECLAIM, SwapPhase.PREFLIGHT), MEMORY)):
        if sum(swap.stage_s.get(phase, 0.0) for phase in phases) > sum(swap.stage_s.values()) / 2:
            return reason
    return SWAP


@dataclass(frozen=True)
class ScrapedState:
    """State of the daemon at one scrape. `now` is Unix seconds."""

    snapshot: Snapshot
    now: float
    engines: Mapping[str, EngineTotals]
    requests: RequestTotals
    swaps: SwapTotals
    last_engines: Mapping[str, Engine]
    """Last engine of each profile, also after its end."""
    store_bytes: int | None = None
    """Size of the database with its journal; None while it cannot be told."""
    store_limit_bytes: int | None = None

    @cached_property
    def summaries(self) -> Mapping[str, ProfileSummary]:
        return {profile.name: profile for profile in self.snapshot.profiles}

    def engine_labels(self, profile: str) -> list[str]:
        engine = self.snapshot.engines.get(profile) or self.last_engines.get(profile)
        if engine is not None:
            return [profile, engine.kind, engine.nodes[0] if engine.nodes else LOCAL]
        summary = self.summaries.get(profile)
        return [profile, summary.engine if summary else "", LOCAL]
