"""The past of the box: the answers, the recorded figures, and replays of a request. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Literal, NamedTuple

from sparkdash.domain.base import Frozen
from sparkdash.domain.event import Level
from sparkdash.domain.metric import METRICS, EngineSample, Gpu, LinkSample, Memory, Metric, NodeSample, Sample
from sparkdash.domain.node import LOCAL
from sparkdash.domain.request import Request
from sparkdash.domain.swap import Plan

UsageGroup = Literal["profile", "client", "key", "session", "hour", "day"]
RequestOrder = Literal["newest", "ttft", "wait", "duration", "output"]

MOST_POINTS = 5_000
"""Buckets of one series."""
MOST_ROWS = 1_000
"""Requests or marks of one answer."""


class FigureInfo(Frozen):
    """A recorded figure: name, label, unit and meaning."""

    name: str
    label: str
    unit: str
    """tok/s, share (0..1), bytes, W, Wh, C, MHz, s, requests, tokens, or bytes/s."""
    of: tuple[Literal["engine", "box"], ...]
    """Kinds of subject that have the figure: an engine (by its profile), a box (by its node), or both."""
    meaning: str


class RecordedSubject(Frozen):
    """Subject of recorded figures: an engine of a profile, or a whole box (then `profile` is empty)."""

    profile: str
    node: str
    first: float
    """Time of the oldest and of the newest record."""
    last: float


class FigureList(Frozen):
    """Figures that are recorded, and of which engines and boxes there are records."""

    figures: tuple[FigureInfo, ...] = ()
    subjects: tuple[RecordedSubject, ...] = ()


class Series(Frozen):
    """Values of a figure over a period, in buckets of `step_s` seconds.

    The arrays have one entry for each bucket of the period, oldest first. A bucket in which nothing was measured has
    None and a count of 0: a gap, never a zero.
    """

    figure: str
    unit: str
    profile: str
    """Profile of the engine; empty for a box."""
    node: str
    since: float
    until: float
    step_s: float
    start: tuple[float, ...] = ()
    """Beginning of each bucket; multiples of `step_s`."""
    min: tuple[float | None, ...] = ()
    mean: tuple[float | None, ...] = ()
    max: tuple[float | None, ...] = ()
    count: tuple[int, ...] = ()


class RecentSeries(Frozen):
    """Means of one figure over the last minutes, with five digits; None is a gap."""

    figure: str
    profile: str
    node: str
    mean: tuple[float | None, ...] = ()


class RecentFigures(Frozen):
    """Several figures over the last minutes, in the same buckets: what a sparkline begins with."""

    begin: float
    step_s: float
    series: tuple[RecentSeries, ...] = ()


class Quantiles(Frozen):
    """Quantiles of a duration or a rate over many requests, each within 1 % of the true value."""

    count: int = 0
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


class UsageTotals(Frozen):
    """Requests of one group, added up."""

    group: str
    """Profile, client, key or session; an hour ("2026-11-23 14:00"), a day ("2026-11-23"); "all" for everything."""
    start: float | None = None
    """Beginning of the hour, the day or the session; None for other groups."""
    end: float | None = None
    """End of a session's last request; None for other groups."""
    requests: int = 0
    """Ended requests, failed and abandoned ones included."""
    errors: int = 0
    gone: int = 0
    prompt_tokens: int = 0
    """Prompt tokens, cached ones included."""
    cached_tokens: int = 0
    output_tokens: int = 0
    """Generated tokens, reasoning included."""
    reasoning_tokens: int = 0
    energy_wh: float | None = None
    """Energy of the requests whose energy is known; None without any."""
    waited: int = 0
    wait_total_s: float = 0.0
    wait_s: Quantiles = Quantiles.model_construct()
    ttft_s: Quantiles = Quantiles.model_construct()
    decode_tok_s: Quantiles = Quantiles.model_construct()


class UsageReport(Frozen):
    """Requests of a period, added up by group. The period is widened to whole hours. Sessions are of the requests that
    are kept one by one, without their quantiles.
    """

    since: float
    until: float
    by: UsageGroup
    rows: tuple[UsageTotals, ...] = ()
    """Hours and days in their order; sessions, the last request's first; other groups, most requests first."""
    total: UsageTotals = UsageTotals.model_construct(group="all")
    busy_wh: float | None = None
    """Energy of the box in the period while requests ran; None without a sensor, and for one profile or client."""
    idle_wh: float | None = None
    """The same while none ran."""


class PastRequests(Frozen):
    """Ended requests of the past."""

    requests: tuple[Request, ...] = ()
    next: str | None = None
    """Value of `after` that continues the list; None at its end."""


class MarkKind(StrEnum):
    """Kind of an event on the time line."""

    SWAP = "swap"
    KILL = "kill"
    """The memory guard killed an engine."""
    INCIDENT = "incident"
    NOTICE = "notice"


class TimelineMark(Frozen):
    """An event on the time line of charts."""

    kind: MarkKind
    at: float
    until: float | None = None
    profile: str | None = None
    level: Level
    code: str
    """Outcome of a swap, "guard_kill", end of an incident ("open" without one), or the notice's code."""
    text: str


class MarkList(Frozen):
    """Events of a period, oldest first."""

    marks: tuple[TimelineMark, ...] = ()
    cut: bool = False


class AnswerMatch(Frozen):
    """Comparison of two answers' texts: reasoning, text and tool calls, in this order, by character."""

    identical: bool
    before: int
    after: int
    differs_at: int | None = None
    """First character that differs, 1 is the first; None where the answers are identical."""


class Replay(Frozen):
    """Replay of one captured request, planned or carried out. It holds no text of request or answer."""

    request: str
    route: str
    stream: bool
    """Whether the answer is a stream. Without one neither TTFT nor decode rate is measured."""
    redacted: bool = False
    """Whether the captured body lacks what looked like a secret, so that the replay differs from the request."""
    profile: str
    plan: Plan
    original: Request | None = None
    """Row of the captured request; None where it is no longer recorded."""
    answer: Request | None = None
    """Row of the replay; None while it is only planned."""
    match: AnswerMatch | None = None
    """Comparison of both answers; None while the replay is only planned, or where either answer is not whole."""


def match_answers(before: str, after: str) -> AnswerMatch:
    if before == after:
        return AnswerMatch(identical=True, before=len(before), after=len(after))
    pairs = enumerate(zip(before, after, strict=False))
    first = next((place for place, (one, other) in pairs if one != other), min(len(before), len(after)))
    return AnswerMatch(identical=False, before=len(before), after=len(after), differs_at=first + 1)


MEMORY = "memory_bytes"
QUEUED = "gateway_waiting"
ENERGY_BUSY, ENERGY_IDLE = "energy_busy_wh", "energy_idle_wh"
"""Counters of the box's energy."""
SILENT_S = 5.0
"""Age of an engine's figures beyond which they are not recorded again: it is silent."""
TOTALS = (Metric.DECODE, Metric.PREFILL, Metric.RUNNING, Metric.WAITING)
"""Figures of engines that a box has too: their sums."""

_BOX = (
    ("memory_total_bytes", "memory", "bytes", "memory of the box"),
    ("memory_available_bytes", "available", "bytes", "memory that programs can still get, as the kernel counts it"),
    ("memory_free_bytes", "free", "bytes", "memory that nothing uses"),
    ("page_cache_bytes", "page cache", "bytes", "cached files and slab that the kernel gives back when asked"),
    ("swap_used_bytes", "swap", "bytes", "swap space in use"),
    ("memory_pressure", "pressure", "share", "share of time in which all tasks waited for memory (PSI full avg10)"),
    ("strangers_bytes", "others", "bytes", "memory of containers that are not ours"),
    ("gpu_utilization", "gpu", "share", "share of time in which the GPU worked"),
    ("gpu_power_w", "power", "W", "power of the GPU by its own sensor"),
    ("board_power_w", "board power", "W", "power of the whole box by its own sensor, where there is one"),
    (
        ENERGY_BUSY,
        "energy, busy",
        "Wh",
        "energy since the daemon's start while requests ran; begins at 0 with each start",
    ),
    (ENERGY_IDLE, "energy, idle", "Wh", "energy since the daemon's start while none ran; begins at 0 with each start"),
    ("gpu_temperature_c", "temperature", "C", "temperature of the GPU"),
    ("gpu_clock_mhz", "clock", "MHz", "clock of the GPU's processors"),
    ("link_received_bytes_s", "received", "bytes/s", "bytes per second from the other nodes, all links together"),
    ("link_sent_bytes_s", "sent", "bytes/s", "bytes per second to the other nodes, all links together"),
)


class Measured(NamedTuple):
    """Figures of one engine or one box at one moment; `profile` is empty for a box."""

    profile: str
    node: str
    at: float
    values: Mapping[str, float]


def all_figures() -> tuple[FigureInfo, ...]:
    engine = [
        FigureInfo(
            name=metric.value,
            label=info.label,
            unit=info.unit,
            of=("engine", "box") if metric in TOTALS else ("engine",),
            meaning=info.definition + ("; of a box the sum over its engines" if metric in TOTALS else ""),
        )
        for metric, info in METRICS.items()
    ]
    held = FigureInfo(
        name=MEMORY, label="memory", unit="bytes", of=("engine",), meaning="memory of the engine's processes"
    )
    queued = FigureInfo(
        name=QUEUED, label="queue", unit="requests", of=("engine",), meaning="requests that wait at the gateway"
    )
    box = [FigureInfo(name=name, label=label, unit=unit, of=("box",), meaning=text) for name, label, unit, text in _BOX]
    return (*engine, held, queued, *box)


def unit_of(figure: str) -> str | None:
    return next((info.unit for info in all_figures() if info.name == figure), None)


def measured_of(sample: Sample) -> Iterator[Measured]:
    """Read the figures of all engines and boxes off a sample; unknown values are left out."""
    engines = list(_measured_engines(sample))
    yield from engines
    local = sample.nodes.get(LOCAL)
    box = _box_values(sample.memory, sample.gpu, local.links if local else ())
    for metric in TOTALS:
        if known := [one.values[metric.value] for one in engines if metric.value in one.values]:
            box[metric.value] = sum(known)
    if sample.energy:
        box |= {ENERGY_BUSY: sample.energy.busy_wh, ENERGY_IDLE: sample.energy.idle_wh}
    if box:
        yield Measured("", LOCAL, sample.at, box)
    for name, node in sample.nodes.items():
        if name != LOCAL:
            yield from _measured_node(name, node)


def _measured_engines(sample: Sample) -> Iterator[Measured]:
    held = sample.memory.engines if sample.memory else {}
    for profile in sorted({*sample.engines, *held}):
        engine = sample.engines.get(profile)
        values = _engine_values(engine, sample.at) if engine else {}
        if (size := held.get(profile)) is not None:
            values[MEMORY] = float(size)
        if values:
            yield Measured(profile, LOCAL, sample.at, values)


def _measured_node(name: str, node: NodeSample) -> Iterator[Measured]:
    for profile, size in (node.memory.engines if node.memory else {}).items():
        if size is not None:
            yield Measured(profile, name, node.at, {MEMORY: float(size)})
    if values := _box_values(node.memory, node.gpu, node.links):
        yield Measured("", name, node.at, values)


def _engine_values(engine: EngineSample, now: float) -> dict[str, float]:
    """Read an engine's figures, or the gateway's where the engine reports none; a silent engine has none."""
    told = engine if now - engine.at <= SILENT_S else engine.replace(values={})
    found = {metric.value: value for metric in METRICS if (value := told.figure(metric).value) is not None}
    if engine.gateway is not None:
        found[QUEUED] = float(engine.gateway.waiting)
    return found


def _box_values(memory: Memory | None, gpu: Gpu | None, links: tuple[LinkSample, ...]) -> dict[str, float]:
    found = {
        **(_memory_values(memory) if memory else {}),
        **(_gpu_values(gpu) if gpu else {}),
        "link_received_bytes_s": _sum_known(link.received_bytes_s for link in links),
        "link_sent_bytes_s": _sum_known(link.sent_bytes_s for link in links),
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def _memory_values(memory: Memory) -> dict[str, float | None]:
    return {
        "memory_total_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "memory_free_bytes": memory.free,
        "page_cache_bytes": memory.page_cache,
        "swap_used_bytes": memory.swap_used,
        "memory_pressure": memory.pressure,
        "strangers_bytes": _sum_known(one.bytes for one in memory.strangers),
    }


def _gpu_values(gpu: Gpu) -> dict[str, float | None]:
    return {
        "gpu_utilization": gpu.utilization,
        "gpu_power_w": gpu.power_w,
        "board_power_w": gpu.board_power_w,
        "gpu_temperature_c": gpu.temperature_c,
        "gpu_clock_mhz": gpu.sm_clock_mhz,
    }


def _sum_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
