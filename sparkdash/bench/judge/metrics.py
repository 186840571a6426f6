"""The figures that arms are compared by: what each is, in words, and its values out of a run's samples.

Rule: `definition` gives the formula of every column, because the same name (TPOT, ITL) has different meanings in
different tools. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from statistics import linear_regression, median

from sparkdash.bench.judge.stats import geomean, token_rate
from sparkdash.bench.results import RequestSample, Results, aggregate_tok_s
from sparkdash.bench.run import CellKey, Kind

PREFILL_TOKENS = 256
"""Below so many uncached tokens the fixed time outweighs the prefill."""


class BenchMetric(StrEnum):
    """A figure of one request, or of one repetition where requests ran at once."""

    DECODE = "decode"
    E2E = "e2e"
    VISIBLE = "visible"
    PREFILL = "prefill"
    TTFT = "ttft"
    TTFV = "ttfv"
    ITL_P99 = "itl_p99"
    AGGREGATE = "aggregate"
    LOAD = "load"

    @property
    def unit(self) -> str:
        return "s" if self in _TIMES else "tok/s"

    @property
    def less_is_better(self) -> bool:
        return self in _TIMES

    @property
    def definition(self) -> str:
        return _DEFINITIONS[self]


LOAD_SUITE = "load"
_MAIN = {LOAD_SUITE: BenchMetric.LOAD, "users": BenchMetric.AGGREGATE}
"""Metrics by which suites are judged that are for something else than the decode rate of a request."""
_TIMES = frozenset({BenchMetric.TTFT, BenchMetric.TTFV, BenchMetric.ITL_P99, BenchMetric.LOAD})
_DEFINITIONS = {
    BenchMetric.DECODE: "(completion tokens - tokens of the first chunk) / (last token - first token); "
    "reasoning counts; blank below 16 tokens",
    BenchMetric.E2E: "completion tokens / (last token - request sent): prefill included, "
    "comparable with bench.py's tables",
    BenchMetric.VISIBLE: "tokens outside the reasoning / (last token - request sent)",
    BenchMetric.PREFILL: "uncached prompt tokens / (first token - request sent - fixed time), "
    "the fixed time fitted over the contexts",
    BenchMetric.TTFT: "first content or reasoning token - request sent",
    BenchMetric.TTFV: "first token outside the reasoning - request sent; without reasoning the same as ttft",
    BenchMetric.ITL_P99: "99th percentile, in one answer, of the waits between moments at which tokens came; blank "
    "below 16 tokens",
    BenchMetric.AGGREGATE: "completion tokens of all concurrent requests / (last end - first start)",
    BenchMetric.LOAD: "first token - creation of the engine's container, once for each launch",
}


def metrics_of(suite: str) -> tuple[BenchMetric, ...]:
    """Return the metrics that a suite's report has: the time of a load only where it is what the suite is for."""
    return tuple(metric for metric in BenchMetric if metric is not BenchMetric.LOAD or suite == LOAD_SUITE)


def main_metric(suite: str) -> BenchMetric:
    return _MAIN.get(suite, BenchMetric.DECODE)


def speed_keys(results: Results) -> list[CellKey]:
    return [cell.key for cell in results.run.cells if cell.key.kind is Kind.SPEED]


def figures_by_launch(results: Results, arm: str, key: CellKey, metric: BenchMetric) -> dict[int, dict[str, float]]:
    """Return an arm's valid values in a cell by launch and prompt; of repeated prompts the geometric mean."""
    if metric is BenchMetric.LOAD:
        starts = ((one.index, one.provenance.startup_s) for one in results.launches if one.arm == arm)
        return {launch: {"start": took} for launch, took in starts if took}
    samples = results.good(arm, key)
    if metric is BenchMetric.AGGREGATE:
        values = _aggregate_values(samples, key.concurrency)
    else:
        fixed_s = fixed_time_s(results, arm) if metric is BenchMetric.PREFILL else 0.0
        values = ((one.launch, one.prompt_id, request_figure(one, metric, fixed_s)) for one in samples)
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for launch, prompt, value in values:
        if value:
            found[launch][prompt].append(value)
    return {launch: {prompt: geomean(ones) for prompt, ones in prompts.items()} for launch, prompts in found.items()}


def _aggregate_values(samples: Iterable[RequestSample], concurrency: int) -> Iterator[tuple[int, str, float | None]]:
    repetitions: dict[tuple[int, int], list[RequestSample]] = defaultdict(list)
    for one in samples:
        repetitions[one.launch, one.rep].append(one)
    for (launch, rep), streams in repetitions.items():
        if len(streams) == concurrency:
            yield launch, f"rep {rep}", aggregate_tok_s(streams)


def request_figure(sample: RequestSample, metric: BenchMetric, fixed_s: float = 0.0) -> float | None:
    """Return the figure of one request; None when it is unknown, and always for the aggregate and the load."""
    match metric:
        case BenchMetric.DECODE:
            return sample.decode_tok_s
        case BenchMetric.E2E:
            return sample.e2e_tok_s
        case BenchMetric.VISIBLE:
            return sample.visible_tok_s
        case BenchMetric.TTFT:
            return sample.ttft_s
        case BenchMetric.TTFV:
            return sample.ttfv_s
        case BenchMetric.ITL_P99:
            return sample.itl_p99_s
        case BenchMetric.PREFILL:
            return _prefill_tok_s(sample, fixed_s)
        case BenchMetric.AGGREGATE | BenchMetric.LOAD:
            return None


def fixed_time_s(results: Results, arm: str) -> float:
    """Return the time to first token of a prompt without length: scheduling, tokenizing, one decode step.

    The intercept of the median TTFT over the uncached prompt tokens, from single cold requests. A probe of its own
    would understate short prefills by up to 30 %. 0 while fewer than two contexts were measured: the rate then
    includes it.
    """
    keys = [cell.key for cell in results.run.cells if cell.key.concurrency == 1]
    points = [point for key in keys if (point := _median_ttft(results, arm, key)) is not None]
    if len({tokens for tokens, _ in points}) < 2:
        return 0.0
    line = linear_regression([tokens for tokens, _ in points], [ttft for _, ttft in points])
    return max(0.0, line.intercept)


def _median_ttft(results: Results, arm: str, key: CellKey) -> tuple[float, float] | None:
    """Return median uncached tokens and median TTFT of a cell; None without valid samples."""
    seen = ((_uncached(one), one.ttft_s) for one in results.good(arm, key))
    known = [(tokens, ttft) for tokens, ttft in seen if tokens and ttft]
    if not known:
        return None
    return median(tokens for tokens, _ in known), median(ttft for _, ttft in known)


def decode_rates(results: Results, arm: str, key: CellKey) -> dict[int, float]:
    """Return tokens of all requests over their decode time, by launch: the work that the engine's counters describe."""
    timed: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for one in results.good(arm, key):
        if one.n is not None and (rate := one.decode_tok_s):
            timed[one.launch].append((one.n - one.k1, (one.n - one.k1) / rate))
    return {launch: token_rate([n for n, _ in ones], [s for _, s in ones]) for launch, ones in timed.items()}


def acceptance_lengths(results: Results, arm: str, key: CellKey) -> dict[int, float]:
    """Mean tokens per verify step by launch, by the engine's counters; 1 for a managed engine without speculation."""
    counted: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for cell in results.cells:
        mine = cell.arm == arm and cell.key == key and cell.void is None
        if mine and cell.drafts and cell.accepted_tokens is not None:
            counted[cell.launch].append((cell.drafts, cell.accepted_tokens))
    lengths = {launch: 1 + sum(a for _, a in ones) / sum(d for d, _ in ones) for launch, ones in counted.items()}
    return dict.fromkeys(_plain_launches(results, arm), 1.0) | lengths


def _plain_launches(results: Results, arm: str) -> list[int]:
    mine = ((one.index, one.provenance) for one in results.launches if one.arm == arm)
    return [index for index, what in mine if what.fingerprint is not None and what.speculation is None]


def _uncached(sample: RequestSample) -> int | None:
    return None if sample.prompt_tokens is None else sample.prompt_tokens - (sample.cached_tokens or 0)


def _prefill_tok_s(sample: RequestSample, fixed_s: float) -> float | None:
    uncached = _uncached(sample)
    if uncached is None or uncached < PREFILL_TOKENS or sample.ttft_s is None or sample.ttft_s <= fixed_s:
        return None
    return uncached / (sample.ttft_s - fixed_s)
