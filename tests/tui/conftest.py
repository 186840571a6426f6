"""A world to show, a link that is a script, and the app on a screen of pinned size with a clock that stands still."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from screen_shots import Shot, open_app

from sparkdash.api.answers import BenchPlan, SettingList
from sparkdash.bench.report.report import Report
from sparkdash.bench.run import Run
from sparkdash.client.address import Address
from sparkdash.domain.container import PullProgress
from sparkdash.domain.engine import Engine, EngineState, Failure, LoadProgress
from sparkdash.domain.event import Event, Fact, SampleTaken
from sparkdash.domain.history import (
    AnswerMatch,
    FigureList,
    MarkList,
    PastRequests,
    RecentFigures,
    RecordedSubject,
    Replay,
    Series,
    TimelineMark,
    UsageReport,
    all_figures,
    unit_of,
)
from sparkdash.domain.images import Inventory
from sparkdash.domain.memory import MemoryAccount
from sparkdash.domain.metric import EngineSample, GatewayFigures, Gpu, Memory, Metric, Sample
from sparkdash.domain.node import Diagnosis
from sparkdash.domain.profile import EngineKind, ProfileSummary
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import DaemonInfo, Figures, Snapshot
from sparkdash.domain.swap import Plan, Swap, SwapCause, SwapOutcome, SwapPhase
from sparkdash.errors import SparkdashError
from sparkdash.tui.mirror import Disconnected, Item, RecordedPast
from sparkdash.units import GIB

NOW = 1_760_104_020.0
"""2025-10-10 13:47 UTC."""
GPT = "gpt-oss-120b"
CODER = "qwen3-coder-30b-nvfp4"
EAGLE = f"{CODER}/eagle3"


def summary(name: str, **changes: Any) -> ProfileSummary:
    values: dict[str, Any] = {
        "name": name, "about": f"About {name}", "engine": EngineKind.VLLM, "engine_version": "0.19.0",
        "image": "nvcr.io/nvidia/vllm:26.04-py3", "serves": (), "context": 131072, "needs_bytes": 79 * GIB, "nodes": 1,
        "cannot_run": None, "nearest": None, "published_decode_tok_s": 57.0,
        "published_note": "pure decode (001.txt)", "speculation": None, "fingerprint": "0123456789ab", "simulated": False,
    }  # fmt: skip
    return ProfileSummary(**(values | changes))


PROFILES = (
    summary(GPT, serves=("gpt-oss",)),
    summary(CODER, needs_bytes=27 * GIB, published_decode_tok_s=68.0),
    summary(EAGLE, needs_bytes=28 * GIB, published_decode_tok_s=73.9, speculation="eagle3 k=1"),
    summary(f"{CODER}/mtp", cannot_run="no MTP head in this model", nearest=EAGLE),
    summary("qwen3.5-122b", needs_bytes=84 * GIB, published_decode_tok_s=51.0),
)


def engine(profile: str = GPT, state: EngineState = EngineState.READY, **changes: Any) -> Engine:
    values: dict[str, Any] = {
        "profile": profile, "kind": EngineKind.VLLM, "state": state, "since": NOW - 8040, "fingerprint": "0123456789ab",
        "port": 18001, "version": "0.19.0", "ready_at": NOW - 8040, "load_s": 220.0, "container": f"c-{profile}",
    }  # fmt: skip
    return Engine(**(values | changes))


TIMED = GatewayFigures(ttft_p50_s=0.41, ttft_p95_s=1.9)


def sample(at: float = NOW, decode: float | None = 57.9, profile: str = GPT, **memory: Any) -> Sample:
    values = {
        Metric.DECODE: decode, Metric.PROMPT_SPEED: 2140.0, Metric.PREFIX_HIT: 0.76, Metric.PREFIX_HIT_LIFETIME: 0.71,
        Metric.KV_USED: 0.41, Metric.KV_CAPACITY: 512_000.0, Metric.ACCEPTANCE: 0.715, Metric.ACCEPTANCE_LENGTH: 2.43,
        Metric.TTFT_P50: 0.41, Metric.TTFT_P95: 1.9,
    }  # fmt: skip
    box: dict[str, Any] = {
        "total": int(121.7 * GIB), "free": int(16.4 * GIB), "page_cache": 21 * GIB, "available": int(37.4 * GIB),
        "swap_total": 0, "swap_used": 0, "pressure": 0.0, "engines": {profile: int(78.2 * GIB)}, "reserve": 10 * GIB,
    }  # fmt: skip
    return Sample(
        at=at,
        engines={profile: EngineSample(at=at, values=values, acceptance_at=(0.81, 0.62), gateway=TIMED)},
        memory=Memory(**(box | memory)),
        gpu=Gpu(utilization=0.96, power_w=62.0, temperature_c=71.0, sm_clock_mhz=2410.0),
    )


def request(ident: str, state: RequestState = RequestState.STREAMING, **changes: Any) -> Request:
    values: dict[str, Any] = {
        "id": ident, "client": "codex", "profile": GPT, "route": "/v1/chat/completions", "state": state,
        "started_at": NOW - 4, "stream": True, "granted_at": NOW - 4,
    }  # fmt: skip
    return Request(**(values | changes))


REQUESTS = (
    request("r1", prompt_tokens=18204, cached_tokens=17920, completion_tokens=312, ttft_s=0.38, decode_tok_s=57.1),
    request("r2", client="open-webui", prompt_tokens=1033, cached_tokens=896, ttft_s=0.09),
    request(
        "r3", RequestState.WAITING, client="aider", profile=CODER, granted_at=None, position=1, started_at=NOW - 62
    ),
)
ENDED = (
    request("r0", RequestState.DONE, client="curl", prompt_tokens=12, cached_tokens=0, completion_tokens=64, ttft_s=0.21,
            decode_tok_s=58.8, finished_at=NOW - 30, status=200, finish_reason="stop"),
    request("r9", RequestState.FAILED, client="curl", finished_at=NOW - 90, status=503, error="engine_crash"),
)  # fmt: skip

FAILURE = Failure(
    code="out_of_memory",
    message="The engine ran out of memory while it loaded weights: 84.0 GiB asked, 61.2 GiB available.",
    hint="Lower gpu-memory-utilization, or stop what else runs on the box.",
    phase="load",
    exit_code=1,
    log_tail=("INFO loading shards 63%", "ERROR torch.OutOfMemoryError: CUDA out of memory.", "ERROR engine core died"),
    evidence="/state/incidents/1",
)


def swap(**changes: Any) -> Swap:
    """gpt-oss makes room for the coder; 72 s in, loading."""
    values: dict[str, Any] = {
        "id": "s1", "target": CODER, "evict": (GPT,), "cause": SwapCause.REQUEST, "phase": SwapPhase.LOAD,
        "started_at": NOW - 72, "phase_at": NOW - 60, "waiting": 1, "expected_s": 220.0,
        "fraction": 0.33, "eta_s": 150.0, "eta_low_s": 128.0, "eta_high_s": 168.0, "eta_at": NOW - 2, "learned_from": 4,
        "progress": LoadProgress(stage="weights", fraction=0.63, detail="Loading safetensors checkpoint shards: 63% 5/8"),
        "stage_s": {SwapPhase.DRAIN: 1.2, SwapPhase.STOP: 4.0, SwapPhase.RECLAIM: 3.1, SwapPhase.PREFLIGHT: 0.2, SwapPhase.CREATE: 1.0},
    }  # fmt: skip
    return Swap(**(values | changes))


def ended(ident: str, outcome: SwapOutcome = SwapOutcome.DONE, took: float = 215.0, **changes: Any) -> Swap:
    values: dict[str, Any] = {
        "started_at": NOW - 900 - took, "ended_at": NOW - 900, "outcome": outcome, "waiting": 0, "progress": None,
        "phase": SwapPhase.WARM, "stage_s": {SwapPhase.DRAIN: 1.2, SwapPhase.LOAD: 190.0, SwapPhase.WARM: 9.8},
    }  # fmt: skip
    return swap(id=ident, **(values | changes))


FIGURES = {
    GPT: Figures(rates=(55.0, 57.3, 58.0, 59.1), ttfts=(0.4, 0.42), best=59.1, load_s=220.0, at=NOW),
    CODER: Figures(rates=(66.0, 67.2), ttfts=(0.2, 0.3), best=67.2, load_s=95.0, at=NOW - 4000),
}


def world(**changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "seq": 100, "at": NOW,
        "daemon": DaemonInfo(version="0.1.0", host="spark-1", pid=1, started_at=NOW - 9000, runtime="podman", url="http://127.0.0.1:8484/v1"),
        "profiles": PROFILES, "engines": {GPT: engine()}, "requests": {r.id: r for r in REQUESTS}, "recent": ENDED,
        "sample": sample(), "figures": FIGURES, "toggle_a": GPT, "toggle_b": CODER,
        "swaps": (ended("s0"), ended("s-1", SwapOutcome.CANCELLED, took=20.0)),
    }  # fmt: skip
    return Snapshot(**(values | changes))


def swapping(**changes: Any) -> Snapshot:
    coming = engine(CODER, EngineState.LOADING, since=NOW - 60, ready_at=None, load_s=None, version=None)
    box = sample(engines={CODER: 17 * GIB}, free=60 * GIB)
    return world(
        **({"engines": {CODER: coming}, "swap": swap(), "requests": {"r3": REQUESTS[2]}, "sample": box} | changes)
    )


def order(name: str) -> Callable[..., Coroutine[Any, Any, None]]:
    """Make an order that is remembered by this name, with what it was given."""

    async def give(self: ScriptedDaemon, **given: Any) -> None:
        await self._do(name, *given.values())

    return give


class ScriptedDaemon:
    """A daemon that says what the test says, and remembers what it was asked."""

    address = Address("http://spark-1:8484", given=True)

    def __init__(self) -> None:
        self.items: asyncio.Queue[Item | SparkdashError] = asyncio.Queue()
        self.asked: list[tuple[Any, ...]] = []
        self.plans: dict[str, Plan] = {}
        self.log: dict[str, list[str]] = {}
        self.diagnosis = Diagnosis(findings=())
        self.account = MemoryAccount(at=NOW, total=0, holdings=())
        self.stock = Inventory()
        self.cut: SparkdashError | None = None
        """Ends a log that is followed."""
        self.reports: dict[str, Report] = {}
        """By run, the newest first."""
        self.listed = SettingList(file="/c/config.toml", settings=())
        self.run_plan = BenchPlan(
            suite="smoke", about="A look", mode="standard", arms=(), order=(), cells=2, gaps=8, expected_s=60.0
        )
        self.files: dict[str, Any] = {}
        """Profiles by name, as far as a test needs their source."""
        self.recorded: Callable[[str | None, float], float | None] = lambda _profile, _at: 50.0
        """Value of every figure of a profile at a moment."""
        self.marks: tuple[TimelineMark, ...] = ()
        self.usage = UsageReport(since=0.0, until=NOW, by="profile")
        self.past_requests: dict[str | None, PastRequests] = {None: PastRequests()}
        """Answers by the place in the list that they go on from."""
        self.replayed: Request | None = None
        self.match: AnswerMatch | None = None
        """Row of a replay, and how its answer compares."""
        self.refuses: SparkdashError | None = None
        """Raised by the next order."""
        self.past = RecordedPast(*[RecentFigures(begin=NOW, step_s=2)] * 2)
        """Recorded before the dashboard began."""
        self.seq = 100

    def tell(self, item: Item | SparkdashError) -> None:
        if isinstance(item, Snapshot):
            self.seq = item.seq
        self.items.put_nowait(item)

    def happen(self, *facts: Fact, at: float = NOW) -> None:
        for fact in facts:
            self.seq += 1
            self.tell(Event(seq=self.seq, at=at, fact=fact))

    async def feed(self) -> AsyncIterator[Item]:
        while True:
            item = await self.items.get()
            if isinstance(item, SparkdashError):
                raise item
            yield item
            self.items.task_done()

    async def recorded_past(self) -> RecordedPast:
        return self.past

    async def _do(self, *order: Any) -> None:
        self.asked.append(order)
        if self.refuses:
            raise self.refuses

    stop, release, extend_load = order("stop"), order("release"), order("extend_load")
    cancel, cancel_request = order("cancel"), order("cancel_request")
    reload, end_measuring, resume_run = order("reload"), order("end measuring"), order("resume")

    async def use(self, *, profile: str) -> Plan:
        await self._do("use", profile)
        return Plan(profile=profile)

    async def toggle(self, *, a: str | None = None, b: str | None = None, flip: bool = False) -> None:
        await self._do("toggle", a, b, flip)

    async def plan(self, *, name: str) -> Plan:
        default = Plan(
            profile=name, evict=(GPT,), reasons={GPT: "idle for 12m34s; it frees 78.2 GiB"}, needs_bytes=27 * GIB,
            available_bytes=95 * GIB, fits=True, expected_s=220.0,
        )  # fmt: skip
        return self.plans.get(name, default)

    async def replay(self, *, request: str, on: str, begin: bool = False) -> Replay:
        await self._do("replay" if begin else "plan a replay", request, on)
        planned = Replay(request=request, route="/v1/chat/completions", stream=True, profile=on,
                         plan=await self.plan(name=on))  # fmt: skip
        return planned.replace(answer=self.replayed, match=self.match) if begin else planned

    async def inventory(self) -> Inventory:
        await asyncio.sleep(0)
        return self.stock

    async def follow_log(self, profile: str) -> AsyncIterator[str]:
        for line in self.log.get(profile, ()):
            yield line
        if self.cut:
            raise self.cut
        await asyncio.Event().wait()

    async def memory(self) -> MemoryAccount:
        await self._do("memory")
        return self.account

    async def doctor(self) -> Diagnosis:
        await self._do("doctor")
        return self.diagnosis

    async def settings(self) -> SettingList:
        return self.listed

    async def change_setting(self, *, key: list[str], value: str | None) -> SettingList:
        await self._do("setting", *key, value)
        return self.listed

    async def profile(self, *, name: str) -> Any:
        return self.files[name]

    async def start_run(self, *, begin: bool, **wish: Any) -> BenchPlan:
        await self._do("begin" if begin else "plan a run", *wish.values())
        return self.run_plan

    async def history_figures(self) -> FigureList:
        subjects = tuple(RecordedSubject(profile=name, node="local", first=0.0, last=NOW) for name in ("", GPT, CODER))
        return FigureList(figures=all_figures(), subjects=subjects)

    async def history_series(
        self, *, figure: str, since: float, until: float, points: int, profile: str | None = None
    ) -> Series:
        await self._do("series", figure, profile, since, until)
        step = max((until - since) / points, 1.0)
        start = tuple(since + number * step for number in range(points))
        means = tuple(self.recorded(profile, at) for at in start)
        return Series(
            figure=figure, unit=unit_of(figure) or "", profile=profile or "", node="local", since=since, until=until,
            step_s=step, start=start, min=means, mean=means, max=means, count=tuple(one is not None for one in means),
        )  # fmt: skip

    async def history_marks(self, *, since: float, until: float, profile: str | None = None) -> MarkList:
        return MarkList(marks=tuple(one for one in self.marks if since <= (one.until or one.at) and one.at < until))

    async def history_usage(self, *, by: Any, since: float, until: float, **_rest: Any) -> UsageReport:
        await self._do("usage", by, since, until)
        return self.usage.model_copy(update={"by": by})

    async def history_requests(self, **wish: Any) -> PastRequests:
        await self._do("past", wish["sort"], wish["status"], wish["min_ttft"], wish["after"])
        return self.past_requests[wish["after"]]

    async def runs(self) -> tuple[Run, ...]:
        return tuple(report.run for report in self.reports.values())

    async def report(self, run: str) -> Report:
        await self._do("report", run)
        return self.reports[run]

    async def pull(self, *, profile: str) -> AsyncIterator[PullProgress]:
        await self._do("pull", profile)
        yield PullProgress(image="localhost/vllm:1", detail="layer 2 of 9", fraction=0.4)
        yield PullProgress(image="localhost/vllm:1", detail="", done=True)


class Stage(Shot):
    """The app on its screen, pressed and told by a test."""

    async def settle(self) -> None:
        while self.daemon.items.qsize():
            await self.pilot.pause()
        for _ in range(4):
            await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def happen(self, *facts: Fact, at: float = NOW) -> None:
        self.daemon.happen(*facts, at=at)
        await self.settle()

    async def tell(self, item: Item | SparkdashError) -> None:
        self.daemon.tell(item)
        await self.settle()

    async def later(self, seconds: float) -> None:
        self._now[0] += seconds
        self.app.want_paint()
        await self.settle()

    @property
    def rows(self) -> list[str]:
        return [" ".join(line.strip("│ ").split()) for line in self.lines]

    @property
    def card_foot(self) -> str:
        return next(line for line in self.lines if line.startswith("╰"))

    @property
    def below_card(self) -> list[str]:
        return self.lines[next(i for i, line in enumerate(self.lines) if line.startswith("╰")) + 1 :]

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines)


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()


@pytest.fixture
def daemon() -> ScriptedDaemon:
    return ScriptedDaemon()


@pytest.fixture
def stage(daemon: ScriptedDaemon) -> Callable[..., AbstractAsyncContextManager[Stage]]:
    """Opens the app: `async with stage(snapshot, size=(80, 24)) as on:`."""

    @asynccontextmanager
    async def opened(
        snapshot: Snapshot | None = None, size: tuple[int, int] = (80, 24), paint_every_s: float = 0.0, **options: Any
    ) -> AsyncIterator[Stage]:
        now = [NOW]
        async with open_app(daemon, now, size, snapshot, paint_every_s=paint_every_s, **options) as (app, pilot):
            on = Stage(app, pilot, daemon, now)
            await on.settle()
            yield on

    return opened


@pytest.fixture
async def on(stage: Any) -> AsyncIterator[Stage]:
    """The app beside a box at work, on a terminal of 80x24."""
    async with stage(world()) as opened:
        yield opened


@pytest.fixture
async def large(stage: Any) -> AsyncIterator[Stage]:
    """The same on a terminal of 120x40."""
    async with stage(world(), size=(120, 40)) as opened:
        yield opened


WORLD = SimpleNamespace(
    now=NOW, gpt=GPT, coder=CODER, eagle=EAGLE, failure=FAILURE, profile=summary, engine=engine, sample=sample,
    request=request, swap=swap, ended=ended, snapshot=world, swapping=swapping, lost=Disconnected(),
    tick=lambda at, **changes: SampleTaken(sample=sample(at, **changes)),
)  # fmt: skip
"""The builders above, for the tests."""


@pytest.fixture
def box() -> SimpleNamespace:
    return WORLD
