"""States of the dashboard while engines serve: one to four of them, with and without figures, requests and marks."""

from typing import Any

from screen_shots import State

from sparkdash.domain.engine import EngineState
from sparkdash.domain.history import RecentFigures, RecentSeries
from sparkdash.domain.metric import Energy, EngineSample, GatewayFigures, LiveRequest, Metric
from sparkdash.domain.profile import EngineKind
from sparkdash.domain.request import RequestState
from sparkdash.domain.state import Figures
from sparkdash.tui.history import MEMORY_STEP_S, STEP_S
from sparkdash.tui.mirror import RecordedPast
from sparkdash.units import GIB

BIG, EMBED, FAMILY = "qwen3.5-122b", "embed-0.6b", "nemotron-3-super-120b-a12b-nvfp4"
LONG = (f"{FAMILY}/eagle3-long-context", f"{FAMILY}/eagle3-short-context", f"{FAMILY}/plain-long-context")
WIDE = ("通义千问-大模型-一百二十亿", "通义千问-小模型-三十亿")
PINNED = ("pinned-to-the-box",)


def minutes_before(box: Any, daemon: Any) -> None:
    """Ten minutes of figures and memory from before the dashboard began: busy, idle, a gap, busy."""
    steps = 300
    rate = [None if 140 <= at < 150 else 0.0 if at < 60 else 40.0 + at % 19 for at in range(steps)]
    figures = {
        Metric.DECODE.value: rate, Metric.DECODE_EACH.value: [each and each / 2 for each in rate],
        Metric.PROMPT_SPEED.value: [1500.0 + 40 * (at % 17) for at in range(steps)],
        Metric.PREFIX_HIT.value: [0.5 + 0.02 * (at % 20) for at in range(steps)],
        Metric.KV_USED.value: [0.1 + 0.001 * at for at in range(steps)],
    }  # fmt: skip
    memory = {
        "memory_available_bytes": [(100 - at // 4) * GIB for at in range(240)],
        "memory_free_bytes": [(70 - at // 4) * GIB for at in range(240)],
        "page_cache_bytes": [30 * GIB] * 240,
    }
    daemon.past = RecordedPast(_recent(box, STEP_S, box.gpt, figures), _recent(box, MEMORY_STEP_S, "", memory))


def _recent(box: Any, step_s: float, profile: str, figures: dict[str, list[Any]]) -> RecentFigures:
    length = max(map(len, figures.values()))
    series = tuple(
        RecentSeries(figure=name, profile=profile, node="local", mean=tuple(mean)) for name, mean in figures.items()
    )
    return RecentFigures(begin=(box.now // step_s - length) * step_s, step_s=step_s, series=series)


def at_work(box: Any) -> Any:
    """One engine, two running requests with live figures, one that waits; energy is measured."""
    sample = box.sample()
    counted = GatewayFigures(in_flight=2, wh_per_1k=0.3)
    engines = {name: one.replace(gateway=counted) for name, one in sample.engines.items()}
    live = {
        "r1": LiveRequest(profile=box.gpt, output_tokens=312, estimated=False, tok_s=28.4, silent_s=0.1),
        "r2": LiveRequest(profile=box.gpt, output_tokens=88, tok_s=29.5, silent_s=14.0),
    }
    energy = Energy(sensor="GPU only", since=box.now - 9000, busy_wh=41.3, idle_wh=8.8)
    return box.snapshot(sample=sample.replace(engines=engines, requests=live, energy=energy))


def serving(box: Any, *names: str, **changes: Any) -> Any:
    """Engines that serve, each with its figures and its memory; the first began last."""
    engines = {name: box.engine(name, ready_at=box.now - 600 * i) for i, name in enumerate(names, 1)}
    sample = box.sample(engines={name: (60 - 12 * i) * GIB for i, name in enumerate(names)})
    figures = {
        name: EngineSample(
            at=box.now, values={Metric.DECODE: 57.9 / i, Metric.RUNNING: 1.0 * i, Metric.KV_USED: 0.2 * i}
        )
        for i, name in enumerate(names, 1)
    }
    profiles = {one.name: one for one in box.snapshot().profiles}
    known = tuple(profiles.get(name) or box.profile(name) for name in (*profiles, *(set(names) - set(profiles))))
    values = {"engines": engines, "profiles": known, "sample": sample.replace(engines=figures)} | changes
    return box.snapshot(**values)


def several(box: Any) -> Any:
    """Three engines serve, a fourth loads, a fifth failed; no request runs."""
    names = (box.gpt, box.coder, box.eagle)
    engines = {name: box.engine(name, ready_at=box.now - 600 * i) for i, name in enumerate(names, 1)}
    engines[BIG] = box.engine(BIG, EngineState.LOADING, ready_at=None, load_s=None)
    engines[EMBED] = box.engine(EMBED, EngineState.FAILED, ready_at=None, failure=box.failure)
    held = {box.gpt: 60 * GIB, box.coder: 12 * GIB, box.eagle: 13 * GIB, BIG: 8 * GIB}
    return box.snapshot(
        engines=engines, requests={}, swap=box.swap(target=BIG, evict=()), sample=box.sample(engines=held)
    )


def gateway_only(box: Any) -> Any:
    """A server of another program: every figure is the gateway's estimate."""
    name = "ollama-qwen3-8b"
    engine = box.engine(
        name, kind=EngineKind.OPENAI, url="http://127.0.0.1:11434", version=None, load_s=None, container=None
    )
    counted = GatewayFigures(in_flight=2, decode_tok_s=3012.4, decode_each_tok_s=1506.2, prompt_tok_s=812.0, ttft_p50_s=0.31,
                             ttft_p95_s=1.2, requests=412, output_tokens=918_000)  # fmt: skip
    found = EngineSample(at=box.now, gateway=counted)
    profile = box.profile(name, engine=EngineKind.OPENAI, needs_bytes=None, image=None, published_decode_tok_s=None)
    requests = {f"q{i}": box.request(f"q{i}", profile=name, prompt_estimate=900 + i) for i in range(2)}
    return box.snapshot(engines={name: engine}, profiles=(profile,), requests=requests,
                        sample=box.sample(engines={}).replace(engines={name: found}))  # fmt: skip


def crowded(box: Any) -> Any:
    """Thirty requests of many clients, one alone decodes; the roofline of its engine is known."""
    states = [RequestState.STREAMING, *[RequestState.WAITING] * 29]
    requests = [
        box.request(f"q{i}", state, client=f"client-with-a-name-{i}", position=i or None, started_at=box.now - i)
        for i, state in enumerate(states)
    ]
    sample = box.sample()
    spark = sample.replace(gpu=sample.gpu.replace(name="NVIDIA GB10"))
    engines = {box.gpt: box.engine(most_steps_s=99.0)}
    return box.snapshot(engines=engines, sample=spark, requests={one.id: one for one in requests})


def unknown(box: Any) -> Any:
    """An engine of which nothing is known, on a box that tells nothing, with a request without figures."""
    engine = box.engine(version=None, load_s=None, ready_at=None, adopted=True, does=None)
    profile = box.profile(box.gpt, needs_bytes=None, context=None, engine_version=None, published_decode_tok_s=None,
                          published_note=None)  # fmt: skip
    sample = box.sample().replace(engines={box.gpt: EngineSample(at=box.now)}, memory=None, gpu=None)
    return box.snapshot(engines={box.gpt: engine}, profiles=(profile,), requests={"r": box.request("r")}, recent=(),
                        sample=sample, figures={}, toggle_a=None, toggle_b=None, swaps=())  # fmt: skip


def huge(box: Any) -> Any:
    sample = box.sample(total=16_000 * GIB, available=4000 * GIB, free=3000 * GIB, page_cache=1000 * GIB,
                        engines={box.gpt: 11_000 * GIB}, swap_total=900 * GIB, swap_used=899 * GIB, pressure=1.0)  # fmt: skip
    values = {
        Metric.DECODE: 1_234_567.8, Metric.DECODE_EACH: 123_456.7, Metric.PROMPT_SPEED: 98_765_432.1, Metric.PREFIX_HIT: 1.0,
        Metric.KV_USED: 1.0, Metric.KV_CAPACITY: 987_654_321.0, Metric.ACCEPTANCE: 1.0, Metric.ACCEPTANCE_LENGTH: 12.0,
        Metric.TTFT_P50: 4321.0, Metric.TTFT_P95: 98_765.4, Metric.RUNNING: 4096.0, Metric.WAITING: 99_999.0,
    }  # fmt: skip
    figures = EngineSample(at=box.now, values=values, acceptance_at=tuple(1.0 for _ in range(11)),
                           gateway=GatewayFigures(ttft_p50_s=4321.0, ttft_p95_s=98_765.4))  # fmt: skip
    gpu = sample.gpu.replace(utilization=1.0, power_w=12_345.0, temperature_c=123.0, sm_clock_mhz=12_345.0)
    big = {"prompt_tokens": 12_345_678, "cached_tokens": 12_345_677, "completion_tokens": 9_876_543, "ttft_s": 12_345.6,
           "decode_tok_s": 123_456.7, "started_at": box.now - 987_654}  # fmt: skip
    requests = {f"h{i}": box.request(f"h{i}", **big) for i in range(3)}
    done = box.request("hd", RequestState.DONE, finished_at=box.now - 5, status=200, finish_reason="length", **big)
    known = {box.gpt: Figures(rates=(99_999.0,), ttfts=(999.0,), best=123_456.7, load_s=99_999.0, at=box.now)}
    return box.snapshot(engines={box.gpt: box.engine(load_s=99_999.0, ready_at=box.now - 99_999_999)}, requests=requests,
                        recent=(done,), figures=known, sample=sample.replace(engines={box.gpt: figures}, gpu=gpu))  # fmt: skip


def not_a_number(box: Any) -> Any:
    """Figures that a broken engine tells as no numbers: most are unknown, some are below zero."""
    sample = box.sample()
    values = {metric: -1.0 for place, metric in enumerate(Metric) if place % 4 == 3}
    gpu = sample.gpu.replace(utilization=None, power_w=None, temperature_c=None, sm_clock_mhz=None)
    live = {"r1": LiveRequest(profile=box.gpt, output_tokens=3)}
    engines = {box.gpt: EngineSample(at=box.now, values=values, gateway=GatewayFigures(in_flight=1))}
    memory = sample.memory.replace(pressure=None)
    return box.snapshot(sample=sample.replace(engines=engines, gpu=gpu, requests=live, memory=memory))


def long_names(box: Any) -> Any:
    """Profiles, clients and a host with long names that begin and end alike."""
    snapshot = serving(box, *LONG, toggle_a=LONG[0], toggle_b=LONG[1])
    clients = [f"a-client-with-quite-a-long-name-of-team-{i}-for-agents" for i in range(5)]
    requests = {f"q{i}": box.request(f"q{i}", client=one, profile=LONG[i % 3]) for i, one in enumerate(clients)}
    daemon = snapshot.daemon.replace(
        host="spark-1-in-the-left-rack-of-the-second-lab", url="http://spark-1-in-the-left-rack:8484/v1"
    )
    return snapshot.replace(requests=requests, daemon=daemon, recent=())


def wide_names(box: Any) -> Any:
    snapshot = serving(box, *WIDE, toggle_a=WIDE[0], toggle_b=WIDE[1])
    clients = ("终端-助手", "kühler-Köder", "クライアント名前がとても長い", "🚀-agent", "e\u0301tude")
    requests = {f"q{i}": box.request(f"q{i}", client=one, profile=WIDE[i % 2]) for i, one in enumerate(clients)}
    return snapshot.replace(requests=requests, recent=())


def queue(box: Any) -> Any:
    """Nine requests wait for an engine that is busy; one is held for long."""
    sample = box.sample()
    values = sample.engines[box.gpt].values | {Metric.RUNNING: 4.0, Metric.WAITING: 9.0}
    requests = [box.request(f"w{i}", RequestState.WAITING, granted_at=None, position=i, started_at=box.now - 600 + i, client="codex")
                for i in range(1, 10)]  # fmt: skip
    return box.snapshot(requests={one.id: one for one in requests},
                        sample=sample.replace(engines={box.gpt: sample.engines[box.gpt].replace(values=values)}))  # fmt: skip


def ended_requests(box: Any) -> Any:
    ends = [
        {"state": RequestState.DONE, "status": 200, "finish_reason": "stop", "completion_tokens": 64, "decode_tok_s": 58.8},
        {"state": RequestState.DONE, "status": 200, "finish_reason": "length", "completion_tokens": 4096, "reasoning_tokens": 900},
        {"state": RequestState.DONE, "status": 200, "finish_reason": "tool_calls", "completion_tokens": 2},
        {"state": RequestState.GONE, "status": None},
        {"state": RequestState.FAILED, "status": 503, "error": "engine_crash"},
        {"state": RequestState.FAILED, "status": 429, "error": "too_many_waiting_requests"},
        {"state": RequestState.DONE, "status": 200, "route": "/v1/embeddings", "stream": False},
    ]  # fmt: skip
    done = [box.request(f"d{i}", finished_at=box.now - 30 * i, prompt_tokens=900, cached_tokens=12, ttft_s=0.4, **end)
            for i, end in enumerate(ends, 1)]  # fmt: skip
    return box.snapshot(requests={}, recent=tuple(done))


def captured_long_work(box: Any) -> Any:
    """A request that decodes for an hour, beside one whose prompt is computed and one that is silent."""
    requests = [
        box.request("l1", started_at=box.now - 3700, granted_at=box.now - 3700, prompt_tokens=131_000, cached_tokens=0),
        box.request("l2", RequestState.PREFILL, prompt_estimate=98_000, started_at=box.now - 40),
        box.request("l3", prompt_tokens=12, started_at=box.now - 90, internal=True, route="/v1/messages"),
    ]
    live = {
        "l1": LiveRequest(profile=box.gpt, output_tokens=61_234, estimated=False, tok_s=17.2, silent_s=0.0),
        "l3": LiveRequest(profile=box.gpt, output_tokens=5, tok_s=None, silent_s=48.0),
    }
    return box.snapshot(requests={one.id: one for one in requests}, sample=box.sample().replace(requests=live))


def simulated(box: Any) -> Any:
    snapshot = box.snapshot()
    return snapshot.replace(daemon=snapshot.daemon.replace(simulated=True, host="spark-1 (demo)"),
                            engines={box.gpt: box.engine(simulated=True)})  # fmt: skip


def low_power(box: Any) -> Any:
    sample = box.sample(decode=6.1)
    return box.snapshot(sample=sample.replace(low_power=True, gpu=sample.gpu.replace(sm_clock_mhz=820.0, power_w=14.0,
                                                                                     throttle=("sw_power_cap",))))  # fmt: skip


STATES = {
    "at-work": State(at_work, prepare=minutes_before),
    "at-work-each": State(at_work, ("e",), prepare=minutes_before),
    "at-work-an-hour": State(at_work, ("right_square_bracket",), prepare=minutes_before),
    "one-engine-idle": State(lambda box: box.snapshot(requests={}, recent=(), sample=box.sample(decode=0.0))),
    "two-engines": State(lambda box: serving(box, box.gpt, box.coder), shows=("gpt-oss-120b",)),
    "two-engines-second-large": State(lambda box: serving(box, box.gpt, box.coder), ("f",)),
    "four-engines": State(lambda box: serving(box, box.gpt, box.coder, box.eagle, BIG)),
    "nine-engines": State(lambda box: serving(box, *(f"model-{i}-of-many" for i in range(9)))),
    "several": State(several, prepare=minutes_before),
    "gateway-only": State(gateway_only, shows=("~",)),
    "crowded": State(crowded, prepare=minutes_before),
    "queue": State(queue),
    "ended-requests": State(ended_requests),
    "long-work": State(captured_long_work),
    "unknown-figures": State(unknown),
    "huge-figures": State(huge),
    "not-a-number": State(not_a_number, prepare=minutes_before),
    "wide-names": State(wide_names),
    "simulated": State(simulated, shows=("SIMULATED",)),
    "low-power": State(low_power),
}
