"""A state in which every family has a sample."""

from typing import Any

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.memory import Guard
from sparkdash.domain.metric import (
    Energy,
    EngineSample,
    GatewayFigures,
    Gpu,
    LinkSample,
    Memory,
    Metric,
    NodeSample,
    Sample,
)
from sparkdash.domain.profile import EngineKind, ProfileSummary
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.domain.swap import Swap, SwapCause, SwapOutcome, SwapPhase
from sparkdash.prometheus.totals import QUEUE, RequestTotals, ScrapedState, SwapTotals
from sparkdash.telemetry.reading import Counters, Gauges, Reading
from sparkdash.telemetry.totals import EngineTotals

NOW = 1_000_000.0
ALPHA, BETA = "alpha", "beta/fast"


def summary(name: str) -> ProfileSummary:
    return ProfileSummary(
        name=name, about="", engine=EngineKind.VLLM, engine_version="0.33", image=f"x/y@sha256:{'0' * 64}", serves=(),
        context=1000, needs_bytes=None, nodes=1, cannot_run=None, nearest=None, published_decode_tok_s=None,
        published_note=None, speculation="mtp k=2", fingerprint="f", simulated=False,
    )  # fmt: skip


def ended(profile: str = ALPHA, **changes: Any) -> Request:
    facts = {
        "id": "r1", "client": "codex", "profile": profile, "route": "/v1/chat/completions", "state": RequestState.DONE,
        "started_at": NOW - 9, "granted_at": NOW - 8, "finished_at": NOW - 5, "status": 200, "ttft_s": 0.5,
        "prompt_tokens": 100, "cached_tokens": 60, "completion_tokens": 50, "reasoning_tokens": 20,
        "decode_tok_s": 25.0, "finish_reason": "stop",
    }  # fmt: skip
    return Request(**{**facts, **changes})


def counted() -> EngineTotals:
    totals = EngineTotals()
    totals.restart()
    counters = Counters(*(float(10 + place) for place in range(len(Counters._fields))))
    totals.add(Reading(1.0, counters, Gauges(), {0: 7.0, 1: 3.0}, {}))
    totals.scrapes.observe(0.02)
    return totals


def swap(number: str, **changes: Any) -> Swap:
    facts = {
        "id": number, "target": ALPHA, "evict": (), "cause": SwapCause.USER, "phase": SwapPhase.LOAD,
        "started_at": NOW - 20, "phase_at": NOW - 10,
    }  # fmt: skip
    return Swap(**{**facts, **changes})


def scraped_state() -> ScrapedState:
    """A box that serves one profile, loads another, and lets a request wait for it."""
    values = dict.fromkeys(Metric, 0.5) | {Metric.RUNNING: 3.0, Metric.WAITING: 1.0}
    memory = Memory(total=1000, available=500, free=300, page_cache=100, pressure=0.1, engines={ALPHA: 400}, reserve=50)
    gpu = Gpu(utilization=0.9, power_w=60.0, temperature_c=70.0, sm_clock_mhz=2400.0)
    sample = Sample(
        at=NOW,
        engines={ALPHA: EngineSample(at=NOW, values=values, gateway=GatewayFigures(energy_wh=1.0))},
        memory=memory,
        gpu=gpu,
        nodes={
            "spark2": NodeSample(
                at=NOW,
                memory=memory,
                gpu=gpu,
                links=(LinkSample(name="cx7", errors=2, received_bytes=7, sent_bytes=8),),
            )
        },
        energy=Energy(sensor="GPU only", since=1.0, busy_wh=2.0, idle_wh=3.0),
    )
    engines = {
        ALPHA: Engine(profile=ALPHA, kind=EngineKind.VLLM, state=EngineState.READY, since=1, fingerprint="f"),
        BETA: Engine(profile=BETA, kind=EngineKind.LLAMACPP, state=EngineState.LOADING, since=1, fingerprint="f"),
    }
    waiting = ended(
        BETA, id="r2", state=RequestState.WAITING, granted_at=None, finished_at=None, status=None, ttft_s=None
    )
    requests, swaps = RequestTotals(), SwapTotals()
    requests.add(ended(), ALPHA, lambda *_: QUEUE)
    swaps.add(
        swap("1", stage_s={SwapPhase.LOAD: 20.0}, ended_at=NOW - 1, outcome=SwapOutcome.DONE, phase=SwapPhase.WARM)
    )
    snapshot = Snapshot(
        seq=1, at=NOW, daemon=DaemonInfo(version="1", host="h", pid=1, started_at=1.0, runtime="podman", url="u"),
        profiles=(summary(ALPHA), summary(BETA)), engines=engines, requests={"r2": waiting}, sample=sample,
        swap=swap("2", target=BETA, fraction=0.4, heard_at=NOW - 3, still_since=NOW - 40), guard=Guard(mode="act"),
    )  # fmt: skip
    return ScrapedState(
        snapshot, NOW, {ALPHA: counted()}, requests, swaps, {}, store_bytes=4096, store_limit_bytes=8192
    )
