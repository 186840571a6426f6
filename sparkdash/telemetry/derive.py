"""Formulas: from an engine's readings to the figures on the screens.

Rule 1: only measured figures are shown. Rates need two readings of the same life of an engine; absent figures are None;
        an idle engine's rate is a measured 0.
Rule 2: a gap between two readings loses nothing. The counters on both sides are true, so their difference is the sum of
        the gap: a window is the stretch of readings whose length is nearest to the wanted one. Pure.
"""

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from itertools import islice, zip_longest
from typing import NamedTuple

from sparkdash.domain.container import CONTAINER_PREFIX
from sparkdash.domain.engine import Engine
from sparkdash.domain.metric import EngineFigures, EngineSample, GatewayFigures, Gpu, Metric, NodeSample, TrafficLook
from sparkdash.domain.phrases import link_share
from sparkdash.engines.probes import MetricNames
from sparkdash.telemetry.power import GPU_ONLY, WHOLE_BOX, Power
from sparkdash.telemetry.reading import Counters, Gauges, Reading, Slots, SlotTally
from sparkdash.telemetry.totals import EngineTotals

_RATES = frozenset({Metric.DECODE, Metric.DECODE_EACH})
NOTHING_PASSED = TrafficLook({}, {}, None)
QUIET = GatewayFigures(decode_tok_s=0.0)
"""Figures of a profile that nobody asked yet."""


def total_power(gpu: Gpu | None, others: Iterable[Gpu | None] = ()) -> Power | None:
    """Return the power of the box, by its own sensor where it has one, with the GPUs of other nodes; None: unknown."""
    if gpu is None or (watts := gpu.power_w if gpu.board_power_w is None else gpu.board_power_w) is None:
        return None
    sensor = GPU_ONLY if gpu.board_power_w is None else WHOLE_BOX
    more = [other.power_w for other in others if other is not None and other.power_w is not None]
    if not more:
        return Power(watts, sensor)
    return Power((gpu.power_w or watts) + sum(more), f"{GPU_ONLY}, {1 + len(more)} boxes")


def with_gateway(
    samples: Mapping[str, EngineSample],
    looked: TrafficLook | None,
    serving: Iterable[str],
    at: float,
    late: Collection[str] = (),
) -> dict[str, EngineSample]:
    """Add the gateway's figures to each serving engine; of `late` ones, whose rates are bursts, they replace those."""
    if looked is None:
        return dict(samples)
    joined = dict(samples)
    for name in serving:
        known = samples.get(name, EngineSample(at=at))
        own = {metric: value for metric, value in known.values.items() if metric not in _RATES}
        values = own if name in late else known.values
        joined[name] = known.replace(values=values, gateway=looked.profiles.get(name, QUIET))
    return joined


def by_profile(nodes: Mapping[str, NodeSample], engines: Mapping[str, Engine]) -> dict[str, NodeSample]:
    """Name the memory of each node's containers by profile; a container of no known engine keeps its own name."""
    heads = {engine.container: name for name, engine in engines.items() if engine.container}
    return {name: _named(sample, heads) for name, sample in nodes.items()}


def _named(sample: NodeSample, heads: Mapping[str, str]) -> NodeSample:
    memory = sample.memory
    if memory is None or not memory.engines:
        return sample
    held: dict[str, int | None] = {}
    for container, size in memory.engines.items():
        head = container.rpartition("-worker")[0] or container
        name = heads.get(container) or heads.get(head) or container.removeprefix(CONTAINER_PREFIX)
        held[name] = (held.get(name) or 0) + (size or 0)
    return sample.replace(memory=memory.replace(engines=held))


def with_reserve(nodes: Mapping[str, NodeSample], reserve: int) -> dict[str, NodeSample]:
    """Add the bytes that are kept free on every node, which the owner's settings know and the node does not."""
    return {
        name: sample.replace(memory=sample.memory.replace(reserve=reserve)) if sample.memory else sample
        for name, sample in nodes.items()
    }


def working(engines: Mapping[str, Engine], samples: Mapping[str, EngineSample]) -> frozenset[str]:
    return frozenset(
        name
        for name, engine in engines.items()
        if len(engine.nodes) > 1 and name in samples and (samples[name].get(Metric.RUNNING) or 0) > 0
    )


def with_link_share(
    samples: Mapping[str, EngineSample],
    worked: Collection[str],
    nodes: Mapping[str, NodeSample],
    engines: Mapping[str, Engine],
) -> dict[str, EngineSample]:
    """Add Metric.LINK_SHARE where one engine on several nodes worked over the whole tick; of two nobody can tell."""
    found = dict(samples)
    if len(worked) != 1:
        return found
    (name,) = worked
    links = [link for node in engines[name].nodes if node in nodes for link in nodes[node].links]
    shares = [share for link in links if (share := link_share(link)) is not None]
    if name in found and shares:
        known = found[name]
        found[name] = known.replace(values={**known.values, Metric.LINK_SHARE: min(max(shares), 1.0)})
    return found


def figures_of(reading: Reading, names: MetricNames, before: EngineFigures) -> EngineFigures:
    """Raw figures of this reading; a counter that it lacks keeps its value of `before`."""
    counters, gauges = reading.counters, reading.gauges
    moving = (*reading.moving, *reading.moving_without_slots)
    told = (counters.generated, counters.prompted, counters.preemptions, *moving)
    earlier = before.progress[: len(told)]
    return EngineFigures(
        answered_at=reading.at,
        running=gauges.running,
        waiting=gauges.waiting,
        deferred=gauges.deferred,
        kv_used=gauges.kv_used,
        asleep=None if gauges.awake is None else gauges.awake == 0,
        progress=tuple(was if now is None else now for now, was in zip_longest(told, earlier)),
        prompt_progress=before.prompt_progress if counters.prefilled is None else counters.prefilled,
        uses_queue=names.slots is not None,
        is_live=names.is_live,
    )


RATE_S = 2.0
"""Window of the token rates: short enough to be live, long enough to hide the jitter of one tick."""
WINDOW_S = 60.0
"""Window of shares and quantiles: over a shorter one, one request is noise."""
LEAST_S = 0.2
"""Shortest window of a rate: the work of one request in an instant is no rate."""
BLUR = 0.1
"""Largest difference between the delays of a rate's two answers, as a share of its window."""

NOTHING = Counters(*(0.0 for _ in Counters._fields))
"""Counters of an engine that has just begun."""


class Derived(NamedTuple):
    """Every Metric, None where unknown, and accepted / drafts for each draft position."""

    values: dict[Metric, float | None]
    acceptance_at: tuple[float, ...] | None
    rate_s: float | None = None
    window_s: float | None = None


class EngineHistory:
    """Readings of the last minute of one life of an engine; figures count from the first reading on."""

    def __init__(self, totals: EngineTotals | None = None) -> None:
        self._totals = totals or EngineTotals()
        self._totals.rebase()
        self._first: Counters | None = None
        self._readings: deque[Reading] = deque()
        self._counted = Counters()
        """Last known value of each counter, as an answer may lack some."""
        self._started: float | None = None
        self._timed_from = -math.inf
        """Monotonic seconds of the oldest reading for rates; the time between earlier and later readings is unknown."""
        self._tally: SlotTally | None = None
        self._changed_at = -math.inf
        self._settled: Derived | None = None
        """Figures of a window whose readings are all alike, until one differs."""

    def add(self, reading: Reading, slots: Slots | None = None, *, leapt: bool = False) -> None:
        """Add a reading, later than the last; start over after a restart of the engine.

        `slots` is llama.cpp's own answer of the same moment. Counters change their meaning with the first and after
        the last of them, so the history starts over then too. `leapt`: the time since the last reading is unknown, so
        no rate spans it.
        """
        self._start_over_if_changed(reading, has_slots=slots is not None)
        if leapt:
            self._timed_from = reading.at
        self._counted = reading.counters.known_or(self._counted)
        self._started = reading.started if reading.started is not None else self._started
        if slots is not None and self._tally is not None:
            reading = reading.with_slots(slots, self._tally)
        if leapt or reading != self.last:
            self._changed_at, self._settled = reading.at, None
        self._readings.append(reading)
        self._totals.add(reading)
        if self._first is None:
            self._first = reading.counters.known_or(NOTHING)  # a counter that is not there yet will begin at 0
        while len(self._readings) > 2 and self._readings[1].at <= reading.at - WINDOW_S:
            self._readings.popleft()

    def _start_over_if_changed(self, reading: Reading, *, has_slots: bool) -> None:
        known = self._started is not None and reading.started is not None
        restarted = (known and self._started != reading.started) or reading.counters.since(self._counted).fell
        if restarted:
            self._forget()
            self._first = NOTHING
            self._totals.restart()
        if has_slots != (self._tally is not None):
            self._forget()
            if not restarted:
                self._totals.rebase()
            self._tally = SlotTally() if has_slots else None

    def _forget(self) -> None:
        self._readings.clear()
        self._counted = Counters()
        self._started = None
        self._timed_from = -math.inf
        self._tally = None

    @property
    def last(self) -> Reading | None:
        return self._readings[-1] if self._readings else None

    @property
    def rests(self) -> bool:
        """Whether the engine has no request, as far as it tells, and its last two readings are alike."""
        last = self.last
        return last is not None and last.at > self._changed_at and last.gauges.running == 0 and not last.gauges.waiting

    def derive(self) -> Derived:
        """Compute the figures as of the last reading; all None without a reading."""
        if not self._readings:
            return Derived(dict.fromkeys(Metric), None)
        last = self._readings[-1]
        derived = self._settled or self._derived(last, self._window_base(), self._rate_base())
        if last.at - self._changed_at >= WINDOW_S:
            self._settled = derived
        return derived

    def _derived(self, last: Reading, oldest: Reading, base: Reading | None) -> Derived:
        window = last.counters.since(oldest.counters) if last is not oldest else Counters()
        lifetime, gauges = last.counters.since(self._first or Counters()), last.gauges
        acceptance, length = self._acceptance(window)
        values = {
            Metric.DECODE: (decode := self._decode(base)),
            Metric.DECODE_EACH: self._each(decode, base),
            Metric.PROMPT_SPEED: _ratio(window.timed_prompt or None, window.prompt_s),
            Metric.PREFILL: self._prefill(base),
            Metric.PREFIX_HIT: _share(window.hits, window.queries),
            Metric.PREFIX_HIT_LIFETIME: _share(lifetime.hits, lifetime.queries),
            Metric.KV_USED: gauges.kv_used,
            Metric.KV_CAPACITY: gauges.kv_capacity,
            Metric.RUNNING: gauges.running,
            Metric.WAITING: gauges.waiting,
            Metric.ACCEPTANCE: acceptance,
            Metric.ACCEPTANCE_LENGTH: length,
            Metric.TTFT_P50: quantile(oldest.ttft, last.ttft, 0.50) if last is not oldest else None,
            Metric.TTFT_P95: quantile(oldest.ttft, last.ttft, 0.95) if last is not oldest else None,
            Metric.PREEMPTIONS: last.counters.preemptions,
        }
        return Derived(
            values,
            _acceptance_at(oldest, last, window.drafts),
            None if base is None else last.at - base.at,
            last.at - oldest.at or None,
        )

    def _window_base(self) -> Reading:
        """Find the reading whose age is nearest to the long window; a single one is taken as it is."""
        last = self._readings[-1]
        earlier = islice(self._readings, min(len(self._readings) - 1, 2))  # `add` keeps one that is older than that
        return min(earlier, key=lambda reading: abs(last.at - reading.at - WINDOW_S), default=last)

    def _rate_base(self) -> Reading | None:
        """Find the reading nearest in age to the rate window whose moment is known well enough, else the oldest."""
        last = self._readings[-1]
        timed = [each for each in self._readings if each.at >= self._timed_from and last.at - each.at >= LEAST_S]
        sharp = [each for each in timed if abs(last.took - each.took) <= BLUR * (last.at - each.at)]
        if sharp:
            return min(sharp, key=lambda reading: abs(last.at - reading.at - RATE_S))
        return timed[0] if timed else None

    def _decode(self, base: Reading | None) -> float | None:
        last = self._readings[-1]
        if last.counters.generated is None and last.gauges.decode is not None:
            return 0.0 if last.gauges.running == 0 else last.gauges.decode  # a gauge keeps its last value when idle
        if base is None:
            return None
        if last.gauges.running == 0 and last.counters.since(self._readings[-2].counters).generated == 0:
            return 0.0  # not the tail of a window that still holds the last request
        return _per_second(last.counters.since(base.counters).generated, last.at - base.at)

    def _each(self, decode: float | None, base: Reading | None) -> float | None:
        """Divide the tokens behind each request's first by the time that requests spent decoding them.

        Where an engine does not tell that time: by the mean number of requests that decode. None while none does, and
        where only those that run are counted, some of which wait for their first token.
        """
        if not decode or base is None:
            return None
        change = self._readings[-1].counters.since(base.counters)
        if change.generated is not None and change.ttft_count is not None and change.decode_s:
            return max(0.0, change.generated - change.ttft_count) / change.decode_s
        gauges = [each.gauges for each in self._readings if each.at >= base.at]
        known = [each.decoding for each in gauges if each.decoding]
        return decode / (sum(known) / len(known)) if known else None

    def _prefill(self, base: Reading | None) -> float | None:
        """Prompt tokens per second of the time in which they were computed.

        Engines that count a whole prompt at its first token (vLLM) would show a burst that no hardware reaches. So the
        time is at least the lesser of two: the time since the counter last moved, and the mean time to first token of
        these requests. While such a prompt is computed no counter moves, and the rate is None.
        """
        last = self._readings[-1]
        if base is None:
            return None
        change = last.counters.since(base.counters)
        computed = change.computed
        if not computed:
            return None if last.gauges.running and not change.generated else computed
        reached_back = min(
            self._still_before(base) + last.at - base.at, _ratio(change.ttft_sum, change.ttft_count) or 0
        )
        return _per_second(computed, max(last.at - base.at, reached_back))

    def _still_before(self, base: Reading) -> float:
        """Seconds before `base` without a counted prompt token."""
        since = base.at
        for reading in reversed(self._readings):
            counted_since = base.counters.since(reading.counters).computed
            if reading.at < self._timed_from or (reading.at < base.at and counted_since):
                break
            since = min(since, reading.at)
        return base.at - since

    def _acceptance(self, window: Counters) -> tuple[float | None, float | None]:
        last, gauges = self._readings[-1], self._gauges_of_last_work()
        acceptance, length = gauges.acceptance, gauges.acceptance_length
        if last.counters.draft_tokens is not None:
            acceptance = _share(window.accepted, window.draft_tokens)
        if last.counters.drafts is not None:
            ratio = _ratio(window.accepted, window.drafts)
            length = None if ratio is None else 1 + ratio
        return acceptance, length

    def _gauges_of_last_work(self) -> Gauges:
        """Latest gauges in the long window that were read during work and tell an acceptance; empty without any."""
        last = self._readings[-1]
        recent = (each for each in reversed(self._readings) if each.at >= last.at - WINDOW_S)
        working = (each.gauges for each in recent if each.gauges.running)
        return next((gauges for gauges in working if gauges.acceptance_length or gauges.acceptance), Gauges())


def quantile(before: Mapping[float, float], after: Mapping[float, float], q: float) -> float | None:
    """Quantile of a histogram's gain between two readings, linear within a bucket.

    `before` and `after` map upper bounds, ascending, to cumulative counts. A quantile beyond the last finite bound is
    that bound. None without a gain, after a bucket fell, and without an infinite bucket.
    """
    gained = {bound: count - before.get(bound, 0.0) for bound, count in after.items()}
    total = gained.get(math.inf, 0.0)
    if total <= 0 or min(gained.values()) < 0:
        return None
    lower, below = 0.0, 0.0
    for bound, count in gained.items():
        if count >= q * total:
            return lower if math.isinf(bound) else lower + (bound - lower) * (q * total - below) / (count - below)
        lower, below = bound, count
    return None


def _acceptance_at(oldest: Reading, last: Reading, drafts: float | None) -> tuple[float, ...] | None:
    if not drafts or not last.accepted_at:
        return None
    return tuple((last.accepted_at[i] - oldest.accepted_at.get(i, 0.0)) / drafts for i in sorted(last.accepted_at))


def _per_second(count: float | None, seconds: float) -> float | None:
    return count / seconds if count is not None and seconds > 0 else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _share(part: float | None, whole: float | None) -> float | None:
    """Ratio clipped to 0..1, as its two counters may move at different moments."""
    ratio = _ratio(part, whole)
    return None if ratio is None else min(1.0, max(0.0, ratio))
