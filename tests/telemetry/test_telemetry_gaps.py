"""Gaps between looks, late answers and leaping clocks, held against what a fake engine with exact counters really did."""

import asyncio
import itertools
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sparkdash.domain.metric import EngineSample, Metric
from sparkdash.engines.registry import adapter
from sparkdash.telemetry.source import MetricsSource
from sparkdash.upstream import Upstream

RATE = 303.0
"""Tokens per second while the true engine works."""
BOUNDS = (0.25, 0.5, 1.0, 2.5, 5.0, math.inf)
BEGAN = 1000.0
"""The fake clock's first second."""


class Truth:
    """An engine that works at an exact pace: 303 tok/s, two requests a second, whose first tokens come sooner from minute to minute."""

    def __init__(self, *, restarts_at: float = math.inf) -> None:
        self.restarts_at = restarts_at

    def tokens(self, since: float, until: float) -> float:
        return RATE * (until - since)

    def requests(self, since: float, until: float) -> list[float]:
        """Times to first token of the requests that began after `since`, up to `until`."""
        return [
            3.0 - 0.02 * (half / 2) % 3 if half % 3 else 0.3 for half in range(int(since * 2) + 1, int(until * 2) + 1)
        ]

    def exposition(self, now: float) -> str:
        """/metrics at `now` seconds after the start."""
        since = self.restarts_at if now >= self.restarts_at else 0.0
        ttft = self.requests(since, now)
        hits = 64 * sum(1 for each in ttft if each < 1.0)
        lines = [
            f"vllm:generation_tokens_total {self.tokens(since, now)}",
            "vllm:num_requests_running 3",
            f"vllm:prefix_cache_hits_total {hits}",
            f"vllm:prefix_cache_queries_total {100 * len(ttft)}",
        ]
        for bound in BOUNDS:
            counted = sum(1 for each in ttft if each <= bound)
            lines.append(f'vllm:time_to_first_token_seconds_bucket{{le="{bound}"}} {counted}'.replace("inf", "+Inf"))
        return "\n".join(lines) + "\n"


def hit_share(ttft: list[float]) -> float:
    return 64 * sum(1 for each in ttft if each < 1.0) / (100 * len(ttft))


def median_by_bucket(ttft: list[float]) -> float:
    """The median as a histogram with these bounds can tell it."""
    lower, below, middle = 0.0, 0, len(ttft) / 2
    for bound in BOUNDS:
        upto = sum(1 for each in ttft if each <= bound)
        if upto >= middle:
            return lower + (bound - lower) * (middle - below) / (upto - below)
        lower, below = bound, upto
    raise AssertionError("no bucket holds the median")


class Looks:
    """A Source that looks at the true engine over HTTP, and what it showed."""

    def __init__(self, truth: Truth, time: Any, server: Any, source: MetricsSource) -> None:
        self._truth = truth
        self.time = time
        self.server = server
        self.source = source
        self.shown: list[EngineSample] = []

    @property
    def now(self) -> float:
        return float(self.time.now - BEGAN)

    async def look(self) -> EngineSample:
        self.server.text = self._truth.exposition(self.now)
        task = self.source.ask()
        if task is not None:
            await task
        self.shown.append(self.source.sample())
        return self.shown[-1]

    async def seconds(self, count: int) -> None:
        for _ in range(count):
            await self.look()
            self.time.now += 1.0

    async def stall(self, seconds: float) -> None:
        """The engine works on, and its /metrics fails for so long."""
        self.server.status = 500
        await self.seconds(int(seconds))
        self.server.status = 200

    async def look_late(self, delay: float, *, counted_when_asked: bool) -> EngineSample:
        """One look whose answer comes after `delay`."""
        self.server.text = self._truth.exposition(self.now)
        arrived = asyncio.Event()
        self.server.free.clear()
        self.server.arrived = arrived.set
        task = self.source.ask()
        assert task is not None
        await arrived.wait()
        self.time.now += delay
        if not counted_when_asked:
            self.server.text = self._truth.exposition(self.now)
        self.server.free.set()
        await task
        self.shown.append(self.source.sample())
        return self.shown[-1]

    def rate(self) -> float | None:
        return self.shown[-1].get(Metric.DECODE)

    def integral(self) -> float:
        """Tokens by the rates that were shown, each held from the look before to its own."""
        told = [(each.at, each.get(Metric.DECODE)) for each in self.shown if each.error is None]
        pairs = itertools.pairwise(told)
        return sum((at - before) * (rate or 0.0) for (before, _), (at, rate) in pairs)


Watching = Callable[..., Any]


@pytest.fixture
def watching(time: Any, new_engine: Any, engine: Any) -> Watching:
    @asynccontextmanager
    async def begin(truth: Truth | None = None, **facts: Any) -> AsyncIterator[Looks]:
        server = await new_engine()
        known = engine(server.url, adopted=True, **facts)
        async with Upstream() as upstream:
            source = MetricsSource(known, adapter(known.kind).metrics, upstream, time.unix, time.monotonic)
            yield Looks(truth or Truth(), time, server, source)
            await source.close()

    return begin


@pytest.mark.parametrize("gap", [5, 10, 40, 300])
async def test_windows_and_rates_after_a_gap_are_what_the_engine_did(watching: Watching, gap: int) -> None:
    async with watching() as looks:
        await looks.seconds(100)
        await looks.stall(gap)
        back = looks.now
        while looks.shown[-1].error is not None:
            await looks.look()
            looks.time.now += 0 if looks.shown[-1].error is None else 1.0
        after = looks.now
        assert looks.rate() == pytest.approx(RATE, rel=0.02)
        assert looks.shown[-1].get(Metric.PREFIX_HIT) is not None
        assert after - back <= 5
        looks.time.now += 1.0
        await looks.seconds(100)
        rates = [each.get(Metric.DECODE) for each in looks.shown[1:]]
        assert rates == pytest.approx([RATE] * len(rates), rel=0.02)
        first, last = looks.shown[0].at, looks.shown[-1].at
        assert looks.integral() == pytest.approx(Truth().tokens(first, last), rel=0.02)


@pytest.mark.parametrize("gap", [5, 10, 40])
async def test_shares_and_quantiles_of_a_minute_with_a_gap_are_exact(watching: Watching, gap: int) -> None:
    truth = Truth()
    async with watching(truth) as looks:
        await looks.seconds(100)
        await looks.stall(gap)
        looked = 0
        while looks.now < 100 + gap + 5 or looks.now - 60 < 99:
            sample = await looks.look()
            if sample.error is None and looks.now - 60 <= 99:
                looked += 1
                minute = truth.requests(looks.now - 60, looks.now)
                assert sample.get(Metric.PREFIX_HIT) == pytest.approx(hit_share(minute))
                assert sample.get(Metric.TTFT_P50) == pytest.approx(median_by_bucket(minute))
            looks.time.now += 1.0
        assert looked >= 5


@pytest.mark.parametrize("delay", [0.8, 2.5, 4.0])
async def test_a_late_answer_belongs_to_the_moment_it_was_asked_for(watching: Watching, delay: float) -> None:
    async with watching() as looks:
        await looks.seconds(20)
        late = await looks.look_late(delay, counted_when_asked=True)
        assert late.at == pytest.approx(looks.time.unix() - delay)
        assert looks.rate() == pytest.approx(RATE, rel=0.02)
        await looks.seconds(3)
        rates = [each.get(Metric.DECODE) for each in looks.shown[1:]]
        assert rates == pytest.approx([RATE] * len(rates), rel=0.02)


@pytest.mark.parametrize("delay", [0.8, 2.5])
async def test_an_engine_that_counts_late_shows_no_burst(watching: Watching, delay: float) -> None:
    async with watching() as looks:
        await looks.seconds(60)
        await looks.look_late(delay, counted_when_asked=False)
        assert looks.rate() == pytest.approx(RATE, rel=0.11)
        await looks.seconds(3)
        rates = [each.get(Metric.DECODE) for each in looks.shown[-3:]]
        assert rates == pytest.approx([RATE] * 3, rel=0.02)
        first, last = looks.shown[0].at, looks.shown[-1].at
        assert looks.integral() == pytest.approx(Truth().tokens(first, last), rel=0.02)


async def test_an_engine_that_is_always_slow_to_answer_shows_its_rate(watching: Watching) -> None:
    async with watching() as looks:
        for _ in range(6):
            await looks.look_late(1.5, counted_when_asked=False)
            looks.time.now += 0.5
        rates = [each.get(Metric.DECODE) for each in looks.shown[1:]]
        assert rates == pytest.approx([RATE] * len(rates), rel=0.02)


@pytest.mark.parametrize("gap", [0, 10])
async def test_an_engine_that_began_anew_gives_nothing_across_its_restart(watching: Watching, gap: int) -> None:
    async with watching(Truth(restarts_at=60.0)) as looks:
        await looks.seconds(60)
        await looks.stall(gap)
        while (await looks.look()).error is not None:
            looks.time.now += 1.0
        assert looks.rate() is None
        assert looks.shown[-1].get(Metric.PREFIX_HIT) is None
        looks.time.now += 1.0
        await looks.look()
        assert looks.rate() == pytest.approx(RATE, rel=0.02)


async def test_a_counter_that_is_missing_for_a_moment_hides_no_restart(watching: Watching) -> None:
    async with watching() as looks:
        await looks.seconds(20)
        rates = []
        for counted in ("", "vllm:generation_tokens_total 5\n", "vllm:generation_tokens_total 45\n"):
            looks.server.text = f"{counted}vllm:num_requests_running {int(bool(counted))}\n"
            await looks.source.ask()
            rates.append(looks.source.sample().get(Metric.DECODE))
            looks.time.now += 1.0
        assert rates == [None, None, pytest.approx(40.0)]


@pytest.mark.parametrize("leap", [30.0, 7200.0, -7200.0])
async def test_no_rate_reaches_over_a_leap_of_the_clock(watching: Watching, leap: float) -> None:
    truth = Truth()
    async with watching(truth) as looks:
        await looks.seconds(30)
        before, here = looks.now, looks.time.unix
        looks.time.unix = looks.source._clock = lambda: here() + leap
        looks.server.text = truth.exposition(before + abs(leap))
        await looks.source.ask()
        woken = looks.source.sample()
        assert woken.get(Metric.DECODE) is None
        assert woken.get(Metric.PREFIX_HIT) == pytest.approx(hit_share(truth.requests(0, before + abs(leap))))
        looks.time.now += 1.0
        looks.server.text = truth.exposition(before + abs(leap) + 1.0)
        await looks.source.ask()
        assert looks.source.sample().get(Metric.DECODE) == pytest.approx(RATE, rel=0.02)


async def test_a_hiccup_of_slots_starts_nothing_over(watching: Watching) -> None:
    """A llama-server whose /slots fails once has not answered once; its rate goes on from what was seen before."""
    slot = {"n_ctx": 4096, "is_processing": True, "id_task": 1}
    async with watching(kind="llamacpp") as looks:
        looks.server.text = "llamacpp:tokens_predicted_total 0\nllamacpp:requests_processing 1\n"
        for second in range(8):
            looks.server.slots = [slot | {"next_token": [{"n_decoded": 30 * second}]}]
            looks.server.slots_status = 503 if second == 5 else 200
            await looks.source.ask()
            if second == 5:
                assert "/slots answered 503" in (looks.source.sample().error or "")
            elif second:
                assert looks.source.sample().get(Metric.DECODE) == pytest.approx(30.0)
            looks.time.now += 1.0


@pytest.mark.parametrize(
    ("health", "kv", "running", "hit"),
    [
        ({"busy": True, "pool_tokens": 2048, "pool_free_tokens": 512, "cached_tokens_total": 30}, (0.75, 2048), 1, 0.3),
        ({"busy": False, "pool_tokens": 0, "pool_free_tokens": None}, (0.1, None), 0, None),
        ({"status": "ok"}, (0.1, None), None, None),  # where it wants a key
    ],
)
async def test_tensorfolds_pool_and_busy_flag_are_read_from_its_health(
    watching: Watching, health: dict[str, Any], kv: Any, running: float | None, hit: float | None
) -> None:
    """The pool holds kept prompts too; without one there is how full the windows of running requests are."""
    async with watching(kind="tensorfold") as looks:
        server = looks.server
        server.text = 'tensorfold:kv_cache_usage_ratio{pool="0"} 0.1\ntensorfold:prompt_tokens_total 0\n'
        server.health = health | {name: 0 for name in health if name == "cached_tokens_total"}
        await looks.source.ask()
        looks.time.now += 1.0
        server.text, server.health = server.text.replace("total 0", "total 100"), health
        await looks.source.ask()
        seen = looks.source.sample()
    assert (seen.get(Metric.KV_USED), seen.get(Metric.KV_CAPACITY)) == kv
    assert (seen.get(Metric.RUNNING), seen.get(Metric.PREFIX_HIT)) == (running, hit)
