"""Families of engines: tokens, cache, speculation, state and load.

Rule: of each counter a profile has one source, the engine where it counts, else the gateway. Loads prometheus_client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric as MetricFamily

from sparkdash.domain.engine import Engine, EngineState, LivenessState
from sparkdash.domain.lease import RequestState
from sparkdash.domain.metric import Metric
from sparkdash.prometheus.families.making import ENGINE, Rows, counter, gauge, histogram
from sparkdash.prometheus.scraped_state import ScrapedState
from sparkdash.telemetry.reading import Counters

SOURCED = (*ENGINE, "source")
STATES = ("serving", "loading", "stalled", "stuck", "stopping", "failed")
SERVING = frozenset({EngineState.READY, EngineState.DRAINING})
_ENDS = {EngineState.STOPPING: "stopping", EngineState.FAILED: "failed"}
Sourced = tuple[float | None, float | None]
"""Figure by the engine, and by the gateway."""


def families(state: ScrapedState) -> Iterator[MetricFamily]:
    """Make the families."""
    yield from _states(state)
    yield from _tokens(state)
    yield from _prefix_cache(state)
    yield from _speculation(state)
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
        is_stuck = engine.liveness is not None and engine.liveness.state is LivenessState.STUCK
        return "stuck" if is_stuck else "serving"
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


def _tokens(state: ScrapedState) -> Iterator[MetricFamily]:
    tokens, counted = state.requests.tokens, _counted(state)
    names = sorted({*tokens, *counted})

    def rows(figures: Iterable[tuple[str, Sourced]]) -> Rows:
        for name, (by_engine, by_gateway) in figures:
            figure, source = (by_gateway, "gateway") if by_engine is None else (by_engine, "engine")
            yield [*state.engine_labels(name), source], figure

    def of_gateway(name: str, field: str) -> float | None:
        figure: float | None = getattr(tokens[name], field) if name in tokens else None
        return figure

    def told(name: str) -> Counters:
        return counted.get(name, Counters())

    def prompt_computed(name: str) -> float | None:
        prompt, cached = of_gateway(name, "prompt"), of_gateway(name, "cached")
        return None if prompt is None else prompt - (cached or 0)

    yield counter(
        "output_tokens", "Generated tokens.", SOURCED,
        rows((name, (told(name).generated, of_gateway(name, "output"))) for name in names),
    )  # fmt: skip
    yield counter(
        "reasoning_tokens", "Tokens of reasoning, within the generated ones.", SOURCED,
        rows((name, (None, of_gateway(name, "reasoning"))) for name in names),
    )  # fmt: skip
    yield counter(
        "prompt_tokens", "Tokens of prompts, cached ones included.", SOURCED,
        rows((name, (_prompted(told(name)), of_gateway(name, "prompt"))) for name in names),
    )  # fmt: skip
    yield counter(
        "prompt_cached_tokens", "Tokens of prompts that were found in the prefix cache.", SOURCED,
        rows((name, (told(name).hits, of_gateway(name, "cached"))) for name in names),
    )  # fmt: skip
    yield counter(
        "prompt_computed_tokens", "Tokens of prompts that were really computed.", SOURCED,
        rows((name, (_computed(told(name)), prompt_computed(name))) for name in names),
    )  # fmt: skip
    yield counter(
        "prefill_seconds", "Sum of the requests' times to first token, the engine's own queue included.", SOURCED,
        rows((name, (told(name).ttft_sum, of_gateway(name, "prefill_s"))) for name in names),
    )  # fmt: skip


def _counted(state: ScrapedState) -> dict[str, Counters]:
    return {name: totals.counters for name, totals in state.engines.items()}


def _prompted(told: Counters) -> float | None:
    """Prompt tokens by the engine: its own counter, else those computed and those found."""
    if told.prompted is not None:
        return told.prompted
    return None if told.prefilled is None or told.hits is None else told.prefilled + told.hits


def _computed(told: Counters) -> float | None:
    if told.prefilled is not None or told.prompted is None or told.hits is None:
        return told.prefilled
    return max(0.0, told.prompted - told.hits)


def _prefix_cache(state: ScrapedState) -> Iterator[MetricFamily]:
    unit = (*ENGINE, "unit")
    counted = _counted(state)
    yield counter(
        "prefix_queries", "Tokens that were looked up in the prefix cache.", unit,
        (([*state.engine_labels(name), "token"], told.queries) for name, told in counted.items()),
    )  # fmt: skip
    yield counter(
        "prefix_hits", "Tokens that were found in the prefix cache.", unit,
        (([*state.engine_labels(name), "token"], told.hits) for name, told in counted.items()),
    )  # fmt: skip


def _speculation(state: ScrapedState) -> Iterator[MetricFamily]:
    counted = _counted(state)
    yield counter(
        "draft_steps", "Steps of speculation.", ENGINE,
        ((state.engine_labels(name), told.drafts) for name, told in counted.items()),
    )  # fmt: skip
    yield counter(
        "draft_tokens", "Tokens that speculation proposed.", ENGINE,
        ((state.engine_labels(name), told.draft_tokens) for name, told in counted.items()),
    )  # fmt: skip
    yield counter(
        "draft_accepted_tokens", "Proposed tokens that were accepted, by position from 0 where the engine tells it.",
        (*ENGINE, "position"),
        (row for name in counted for row in _accepted(state, name)),
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
