"""The page of metrics, classic or OpenMetrics: its families of figures, and their names. Loads prometheus_client."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as MetricFamily
from prometheus_client.registry import Collector

from sparkdash.domain.engine import Engine, EngineState
from sparkdash.domain.memory import GuardLevel
from sparkdash.domain.metric import Gpu, Memory, Metric, NodeSample
from sparkdash.domain.node import LOCAL
from sparkdash.domain.request import Request, RequestState
from sparkdash.prometheus.totals import OTHER, QUEUE, SWAP, WAITS, GatewayTokens, ScrapedState
from sparkdash.telemetry.reading import Counters
from sparkdash.telemetry.totals import LatencyHistogram

ENGINE = ("profile", "engine", "node")
"""Labels of an engine's metrics."""
Rows = Iterable[tuple[Sequence[str], float | None]]
"""Values of the labels, and the figure; None is unknown and left out."""


def gauge(name: str, documentation: str, labels: Sequence[str], rows: Rows) -> MetricFamily:
    return _filled(GaugeMetricFamily(f"sparkdash_{name}", documentation, labels=labels), rows)


def counter(name: str, documentation: str, labels: Sequence[str], rows: Rows) -> MetricFamily:
    """Make a counter; `name` is without `_total`."""
    return _filled(CounterMetricFamily(f"sparkdash_{name}", documentation, labels=labels), rows)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Rows) -> MetricFamily:
    for values, figure in rows:
        if figure is not None:
            family.add_metric(values, figure)
    return family


def histogram(
    name: str, documentation: str, labels: Sequence[str], rows: Iterable[tuple[Sequence[str], LatencyHistogram]]
) -> MetricFamily:
    family = HistogramMetricFamily(f"sparkdash_{name}", documentation, labels=labels)
    for values, counted in rows:
        family.add_metric(values, list(counted.cumulative()), counted.sum_s)
    return family


NODE = ("node",)
GPU = ("node", "gpu")
ONLY_GPU = "0"
HERTZ = 1e6
WATT_HOUR = 3600.0


def box_families(state: ScrapedState) -> Iterator[MetricFamily]:
    daemon = state.snapshot.daemon
    yield gauge("build_info", "Version of sparkdash, always 1.", ("version",), [([daemon.version], 1.0)])
    yield gauge(
        "simulated", "1 where the box and its engines are simulated, and every figure is invented.", (),
        [((), float(daemon.simulated))],
    )  # fmt: skip
    yield gauge(
        "start_time_seconds", "Start of the daemon, Unix seconds: all counters begin there.", (),
        [((), daemon.started_at)],
    )  # fmt: skip
    sample = state.snapshot.sample
    if sample is not None:
        memories = {name: node.memory for name, node in sample.nodes.items() if node.memory is not None}
        yield from _memory(memories | ({LOCAL: sample.memory} if sample.memory is not None else {}))
        gpus = {name: node.gpu for name, node in sample.nodes.items() if node.gpu is not None}
        yield from _gpus(gpus | ({LOCAL: sample.gpu} if sample.gpu is not None else {}))
    yield from _guard(state)
    yield from _links(sample.nodes if sample is not None else {})
    yield from _energy(state)
    yield gauge("store_bytes", "Size of the database on disk.", (), [((), state.store_bytes)])
    yield gauge("store_limit_bytes", "Largest size of the database.", (), [((), state.store_limit_bytes)])


_OF_MEMORY: tuple[tuple[str, str, Callable[[Memory], float | None]], ...] = (
    ("memory_total_bytes", "Memory of the node.", lambda memory: memory.total),
    ("memory_available_bytes", "Memory that programs can get, by the kernel's own estimate.", lambda m: m.available),
    ("memory_reserve_bytes", "Memory that starts of engines leave available.", lambda memory: memory.reserve),
    ("memory_pressure_ratio", "Share of the last 10 s in which all tasks waited for memory, 0 to 1.",
     lambda memory: memory.pressure),
)  # fmt: skip
_OF_GPU: tuple[tuple[str, str, Callable[[Gpu], float | None]], ...] = (
    ("gpu_utilization_ratio", "Share of time in which the GPU computed, 0 to 1.", lambda gpu: gpu.utilization),
    ("gpu_clock_hertz", "Clock of the GPU's multiprocessors.",
     lambda gpu: None if gpu.sm_clock_mhz is None else gpu.sm_clock_mhz * HERTZ),
    ("gpu_temperature_celsius", "Temperature of the GPU.", lambda gpu: gpu.temperature_c),
    ("gpu_power_watts", "Power of the GPU, without the rest of the box.", lambda gpu: gpu.power_w),
)  # fmt: skip


def _memory(memories: Mapping[str, Memory]) -> Iterator[MetricFamily]:
    yield gauge(
        "memory_bytes", "Memory by owner: a profile, other, cache, free. Adds up to the total.",
        ("node", "owner"),
        (([node, owner], held) for node, memory in memories.items() for owner, held in memory_by_owner(memory).items()),
    )  # fmt: skip
    for name, documentation, figure in _OF_MEMORY:
        yield gauge(name, documentation, NODE, (([node], figure(memory)) for node, memory in memories.items()))


def memory_by_owner(memory: Memory) -> dict[str, int]:
    """Divide the whole memory among its owners; the sum is the total.

    An engine of unknown size is part of `other`. The reserve is no owner: it may lie in the cache.
    """
    left = memory.total
    found: dict[str, int] = {}

    def take(owner: str, held: int) -> None:
        nonlocal left
        found[owner] = found.get(owner, 0) + min(max(held, 0), left)
        left -= min(max(held, 0), left)

    take("free", memory.free)
    for profile, held in memory.engines.items():
        if held is not None:
            take(profile, held)
    take("cache", memory.page_cache or 0)
    take("other", left)
    return found


def _gpus(gpus: Mapping[str, Gpu]) -> Iterator[MetricFamily]:
    for name, documentation, figure in _OF_GPU:
        yield gauge(name, documentation, GPU, (([node, ONLY_GPU], figure(gpu)) for node, gpu in gpus.items()))


def _guard(state: ScrapedState) -> Iterator[MetricFamily]:
    guard = state.snapshot.guard
    if guard is None:
        return
    words = ("off", *GuardLevel)
    current = "off" if guard.mode == "off" else guard.level
    rows: Rows = (([LOCAL, word], float(word == current)) for word in words)
    yield gauge("guard_state", "1 for the memory guard's level, 0 for every other one.", ("node", "state"), rows)
    yield counter("guard_acts", "Engines that the memory guard ended.", ("node", "act"), [
        ([LOCAL, "kill"], state.swaps.kills)
    ])  # fmt: skip


def _energy(state: ScrapedState) -> Iterator[MetricFamily]:
    sample = state.snapshot.sample
    energy = sample.energy if sample else None
    used = () if energy is None else (("busy", energy.busy_wh), ("idle", energy.idle_wh))
    sensor = "" if energy is None else energy.sensor
    yield counter(
        "energy_joules", "Energy by the named sensor, while requests ran (busy) and while none did (idle).",
        ("node", "sensor", "use"),
        (([LOCAL, sensor, use], hours * WATT_HOUR) for use, hours in used),
    )  # fmt: skip
    served = {} if sample is None else {name: engine.gateway for name, engine in sample.engines.items()}
    yield counter(
        "energy_profile_joules", "Energy while requests of the profile ran, shared by tokens with other profiles.",
        ("profile",),
        (([name], figures.energy_wh * WATT_HOUR)
         for name, figures in served.items() if figures is not None and figures.energy_wh is not None),
    )  # fmt: skip


def _links(nodes: Mapping[str, NodeSample]) -> Iterator[MetricFamily]:
    links = [(node, link) for node, sample in nodes.items() for link in sample.links]
    both = [
        ([node, link.name, direction], total)
        for node, link in links
        for direction, total in (("received", link.received_bytes), ("sent", link.sent_bytes))
    ]
    yield counter(
        "link_bytes", "Bytes over the link since the connection to the node was made.",
        ("node", "device", "direction"), both,
    )  # fmt: skip
    yield counter(
        "link_errors", "Receive and transmit errors of the link since the connection to the node was made.",
        ("node", "device"),
        (([node, link.name], link.errors) for node, link in links),
    )  # fmt: skip


SOURCED = (*ENGINE, "source")
STATES = ("serving", "loading", "stalled", "stuck", "stopping", "failed")
SERVING = frozenset({EngineState.READY, EngineState.DRAINING})
_ENDS = {EngineState.STOPPING: "stopping", EngineState.FAILED: "failed"}


def engine_families(state: ScrapedState) -> Iterator[MetricFamily]:
    yield from _states(state)
    yield from _tokens(state)
    yield from _counters(state)
    yield from _gauges(state)
    yield from _loads(state)
    yield counter(
        "scrape_failures", "Failed scrapes of the engine's own metrics.", ENGINE,
        ((state.engine_labels(name), each.failed_scrapes) for name, each in state.engines.items()),
    )  # fmt: skip
    yield histogram(
        "scrape_seconds", "Duration of the scrapes of the engine's own metrics.", ENGINE,
        ((state.engine_labels(name), each.scrapes) for name, each in state.engines.items()),
    )  # fmt: skip


def _states(state: ScrapedState) -> Iterator[MetricFamily]:
    engines = state.snapshot.engines
    current = {name: _state(state, engine) for name, engine in engines.items()}
    yield gauge(
        "engine_state", "1 for the engine's state, 0 for every other one.", (*ENGINE, "state"),
        (([*state.engine_labels(name), word], float(word == is_in))
         for name, is_in in current.items() for word in STATES),
    )  # fmt: skip
    yield gauge(
        "engine_info", "Version and image of the engine, always 1.",
        (*ENGINE, "version", "image_digest", "speculation", "context"),
        (([*state.engine_labels(name), *_about(state, engine)], 1.0) for name, engine in engines.items()),
    )  # fmt: skip


def _state(state: ScrapedState, engine: Engine) -> str:
    if engine.state in SERVING:
        return "stuck" if engine.is_stuck else "serving"
    if (word := _ENDS.get(engine.state)) is not None:
        return word
    swap = state.snapshot.swap_to(engine.profile)
    return "stalled" if swap is not None and swap.still_since is not None else "loading"


def _about(state: ScrapedState, engine: Engine) -> tuple[str, str, str, str]:
    """Values of the info labels; empty where unknown."""
    profile = state.summaries.get(engine.profile)
    if profile is None:
        return engine.version or "", "", "", ""
    digest = (profile.image or "").partition("@")[2]
    return engine.version or profile.engine_version or "", digest, profile.speculation or "", str(profile.context or "")


_TOKENS: tuple[
    tuple[str, str, Callable[[Counters], float | None], Callable[[GatewayTokens], float | None]], ...
] = (
    ("output_tokens", "Generated tokens.", lambda told: told.generated, lambda seen: seen.output),
    ("reasoning_tokens", "Tokens of reasoning, within the generated ones.", lambda _: None,
     lambda seen: seen.reasoning),
    ("prompt_tokens", "Tokens of prompts, cached ones included.", lambda told: told.all_prompted,
     lambda seen: seen.prompt),
    ("prompt_cached_tokens", "Tokens of prompts that were found in the prefix cache.", lambda told: told.hits,
     lambda seen: seen.cached),
    ("prompt_computed_tokens", "Tokens of prompts that were really computed.", lambda told: told.computed,
     lambda seen: seen.prompt - (seen.cached or 0)),
    ("prefill_seconds", "Sum of the requests' times to first token, the engine's own queue included.",
     lambda told: told.ttft_sum, lambda seen: seen.prefill_s),
)  # fmt: skip
_TOKEN = {"unit": "token"}
_COUNTERS: tuple[tuple[str, str, Mapping[str, str], Callable[[Counters], float | None]], ...] = (
    ("prefix_queries", "Tokens that were looked up in the prefix cache.", _TOKEN, lambda told: told.queries),
    ("prefix_hits", "Tokens that were found in the prefix cache.", _TOKEN, lambda told: told.hits),
    ("draft_steps", "Steps of speculation.", {}, lambda told: told.drafts),
    ("draft_tokens", "Tokens that speculation proposed.", {}, lambda told: told.draft_tokens),
)


def _tokens(state: ScrapedState) -> Iterator[MetricFamily]:
    tokens, engines = state.requests.tokens, state.engines

    def rows(
        by_engine: Callable[[Counters], float | None], by_gateway: Callable[[GatewayTokens], float | None]
    ) -> Rows:
        for name in sorted({*tokens, *engines}):
            source, figure = "engine", by_engine(engines[name].counters) if name in engines else None
            if figure is None:
                source, figure = "gateway", by_gateway(tokens[name]) if name in tokens else None
            yield [*state.engine_labels(name), source], figure

    for counted, documentation, by_engine, by_gateway in _TOKENS:
        yield counter(counted, documentation, SOURCED, rows(by_engine, by_gateway))


def _counters(state: ScrapedState) -> Iterator[MetricFamily]:
    def rows(more: Iterable[str], figure: Callable[[Counters], float | None]) -> Rows:
        return (([*state.engine_labels(n), *more], figure(each.counters)) for n, each in state.engines.items())

    for counted, documentation, more, figure in _COUNTERS:
        yield counter(counted, documentation, (*ENGINE, *more), rows(more.values(), figure))
    yield counter(
        "draft_accepted_tokens", "Proposed tokens that were accepted, by position from 0 where the engine tells it.",
        (*ENGINE, "position"),
        (row for name in state.engines for row in _accepted(state, name)),
    )  # fmt: skip


def _accepted(state: ScrapedState, name: str) -> Rows:
    totals, labels = state.engines[name], state.engine_labels(name)
    if totals.accepted_at:
        return [([*labels, str(position)], count) for position, count in sorted(totals.accepted_at.items())]
    return [([*labels, ""], totals.counters.accepted)]


def _gauges(state: ScrapedState) -> Iterator[MetricFamily]:
    sampled = state.snapshot.sample.engines if state.snapshot.sample else {}
    engines = [name for name in state.snapshot.engines if name in sampled]

    def rows(metric: Metric) -> Rows:
        return ((state.engine_labels(name), sampled[name].get(metric)) for name in engines)

    yield gauge("kv_capacity_tokens", "Tokens that the KV cache can hold.", ENGINE, rows(Metric.KV_CAPACITY))
    yield gauge("kv_used_ratio", "Used share of the KV cache, 0 to 1.", ENGINE, rows(Metric.KV_USED))
    yield gauge(
        "context_limit_tokens", "Longest context of one request.", ENGINE,
        ((state.engine_labels(name), profile.context)
         for name in state.snapshot.engines if (profile := state.summaries.get(name))),
    )  # fmt: skip
    yield gauge(
        "engine_requests", "Requests inside the engine by phase.", (*ENGINE, "phase"),
        (row for name, engine in state.snapshot.engines.items() if engine.state in SERVING
         for row in _phases(state, name)),
    )  # fmt: skip


def _phases(state: ScrapedState, name: str) -> Rows:
    """Requests that wait inside the engine, compute their prompt, or decode.

    How many run is the engine's own figure where it tells one; how many of them compute their prompt is the gateway's.
    """
    mine = [request.state for request in state.snapshot.requests.values() if request.profile == name]
    prefill, decoding = mine.count(RequestState.PREFILL), mine.count(RequestState.STREAMING)
    sample = state.snapshot.sample.engines.get(name) if state.snapshot.sample else None
    running = sample.get(Metric.RUNNING) if sample else None
    if running is not None:
        prefill = min(prefill, int(running))
        decoding = int(running) - prefill
    labels = state.engine_labels(name)
    yield [*labels, "waiting"], sample.get(Metric.WAITING) if sample else None
    yield [*labels, "prefill"], prefill
    yield [*labels, "decoding"], decoding


def _loads(state: ScrapedState) -> Iterator[MetricFamily]:
    loads = [swap for swap in state.snapshot.swaps_under_way if swap.target is not None]
    yield gauge(
        "load_progress_ratio", "Share of the swap that is done, 0 to 1; absent when nothing loads.", ENGINE,
        ((state.engine_labels(swap.target or ""), swap.fraction) for swap in loads),
    )  # fmt: skip
    yield gauge(
        "load_last_sign_seconds", "Time since the last line of the loading engine's log.", ENGINE,
        ((state.engine_labels(swap.target or ""), state.now - swap.heard_at)
         for swap in loads if swap.heard_at is not None),
    )  # fmt: skip


CLIENT = ("profile", "client")
REASON = ("profile", "reason")


def gateway_families(state: ScrapedState) -> Iterator[MetricFamily]:
    requests, swaps = state.requests, state.swaps
    yield counter(
        "requests", "Requests that ended at the gateway.", ("profile", "client", "route", "code", "finish"),
        requests.requests.items(),
    )  # fmt: skip
    for name, documentation, labels, counted in (
        ("request_duration_seconds", "Time from a request's arrival to its end, waits included.", CLIENT,
         requests.durations),
        ("time_to_first_token_seconds",
         "Time from sending a request to the engine until its first text, without the wait for an engine.", CLIENT,
         requests.first_tokens),
        ("time_per_output_token_seconds", "Mean time between two tokens of one answer.", CLIENT, requests.per_token),
        ("wait_seconds", "Time that a request waited for its engine; requests without a wait are not in it.", REASON,
         requests.waits),
    ):  # fmt: skip
        yield histogram(name, documentation, labels, counted.items())
    yield from _queue(state)
    yield counter("swaps", "Changes of the running profiles that ended.", ("profile", "outcome"), swaps.swaps.items())
    yield histogram(
        "swap_stage_seconds", "Time that a swap spent in each stage.", ("profile", "stage"), swaps.stages.items()
    )


def _queue(state: ScrapedState) -> Iterator[MetricFamily]:
    """Make the gauges of the requests that wait now."""
    waiting: defaultdict[tuple[str, str], list[Request]] = defaultdict(list)
    for request in state.snapshot.requests.values():
        if request.state is RequestState.WAITING:
            waiting[_profile(state, request), _reason(state, request)].append(request)
    sizes = ((labels, len(each)) for labels, each in waiting.items())
    ages = ((labels, max(state.now - one.started_at for one in each)) for labels, each in waiting.items())
    yield gauge("queue_requests", "Requests that wait for an engine.", REASON, sizes)
    yield gauge("queue_oldest_seconds", "Age of the oldest request that waits.", REASON, ages)


def _profile(state: ScrapedState, request: Request) -> str:
    return request.profile if request.profile in state.summaries else OTHER


def _reason(state: ScrapedState, request: Request) -> str:
    swap = state.snapshot.swap_to(request.profile)
    return QUEUE if swap is None else WAITS.get(swap.phase, SWAP)


@dataclass(frozen=True)
class _Collected(Collector):
    """Families of one scrape, in place of a registry."""

    families: tuple[MetricFamily, ...]

    def collect(self) -> Iterator[MetricFamily]:
        yield from self.families


def collect_families(state: ScrapedState) -> tuple[MetricFamily, ...]:
    found = (*box_families(state), *engine_families(state), *gateway_families(state))
    return tuple(family for family in found if family.samples)


def write_page(state: ScrapedState, accept: str) -> tuple[bytes, str]:
    """Write the figures in the format that a request's Accept header asks for; return the page and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(_Collected(collect_families(state))), content_type
