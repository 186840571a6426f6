"""Metric and Sample: one tick of telemetry. Every rate names what it divides by what; None is unknown. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import field_validator

from sparkdash.domain.base import Frozen
from sparkdash.domain.container import ForeignContainer


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """Figures of one incarnation of an engine. None: the engine does not tell. Times are monotonic seconds."""

    answered_at: float | None = None
    """Time of the scrape that gave these figures; None before the first answer."""
    unanswered_since: float | None = None
    """Time of the first scrape without an answer; None once a scrape was answered."""
    running: float | None = None
    waiting: float | None = None
    deferred: float | None = None
    """Waiting requests that wait for a grammar, remote KV or the like, and not for room."""
    kv_used: float | None = None
    """KV cache in use / KV cache, not rounded: the only figure of vLLM that moves during a prefill."""
    asleep: bool | None = None
    """Whether the engine was put to sleep, its weights unloaded."""
    progress: tuple[float | None, ...] = ()
    """Counters of tokens, steps and requests: any change is movement."""
    prompt_progress: float | None = None
    """Counter of prompt tokens; with llama-server and SGLang it moves during a prefill, with vLLM at its end."""
    uses_queue: bool = False
    """Whether the engine answers for its figures in the queue of its own work, as llama-server does."""
    is_live: bool = True
    """Whether the figures move while a request runs. TensorRT-LLM's and Atlas' do so only when one ends."""


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """Last answered reading of the GPU. None: unknown to the driver."""

    looked_at: float
    """Monotonic seconds."""
    name: str | None = None
    power_w: float | None = None
    low_w: float | None = None
    """Power below which this GPU computes nothing."""
    utilization: float | None = None
    """0..1"""


class Energy(Frozen):
    """Energy of the box since `since`, integrated from the power at each tick (trapezoids). Unix seconds, Wh."""

    sensor: str
    """Part of the box that the sensor measures: "GPU only"."""
    since: float
    busy_wh: float = 0.0
    """Energy while at least one request ran."""
    idle_wh: float = 0.0
    """Energy while none ran."""
    unknown_s: float = 0.0
    """Seconds without a reading of the power, in neither."""


class GatewayFigures(Frozen):
    """Figures of one profile by the gateway's own count: what passed through it, and nothing else.

    Counters begin with the daemon.
    """

    in_flight: int = 0
    """Requests that were sent to the engine and have not ended."""
    waiting: int = 0
    """Requests that wait for the engine at the gateway."""
    decode_tok_s: float | None = None
    """Output tokens of all running requests together / wall time, over the last seconds."""
    rate_s: float | None = None
    """Seconds until the sample's time that `decode_tok_s` covers."""
    decode_each_tok_s: float | None = None
    """The same / number of requests that decode."""
    prompt_tok_s: float | None = None
    """Prompt tokens that were not cached / time from sending to the first text, of requests of the last 60 s."""
    ttft_p50_s: float | None = None
    """Time from sending to the first text, of requests of the last 60 s."""
    ttft_p95_s: float | None = None
    requests: int = 0
    """Ended requests, failed ones included."""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    """Tokens of ended requests, by the engine's own usage."""
    energy_wh: float | None = None
    """Energy while requests of the profile ran, shared by tokens with other profiles; None without a sensor."""
    wh_per_1k: float | None = None
    """Energy / output tokens x 1000, over the same time; None without a sensor or tokens."""


class LiveRequest(Frozen):
    """Progress of one running request at one tick, as far as its answer has passed through the gateway."""

    profile: str
    output_tokens: int | None = None
    """Output tokens so far; None for an answer that does not come as a stream."""
    estimated: bool = True
    tok_s: float | None = None
    """Output tokens per second over the last `rate_s` seconds; None before the second tick with text."""
    rate_s: float | None = None
    """Seconds that the rate covers, up to the sample's time."""
    silent_s: float | None = None
    """Seconds since the last piece of the answer that shows work; None before the first."""


class TrafficLook(NamedTuple):
    """All that the gateway tells of one tick."""

    requests: dict[str, LiveRequest]
    profiles: dict[str, GatewayFigures]
    energy: Energy | None


class Metric(StrEnum):
    """Figure that telemetry derives for an engine every tick."""

    DECODE = "decode_tok_s"
    DECODE_EACH = "decode_each_tok_s"
    PROMPT_SPEED = "prompt_tok_s"
    PREFILL = "prefill_tok_s"
    PREFIX_HIT = "prefix_hit"
    PREFIX_HIT_LIFETIME = "prefix_hit_lifetime"
    KV_USED = "kv_used"
    KV_CAPACITY = "kv_capacity_tokens"
    RUNNING = "running"
    WAITING = "waiting"
    ACCEPTANCE = "acceptance"
    ACCEPTANCE_LENGTH = "acceptance_length"
    TTFT_P50 = "ttft_p50_s"
    TTFT_P95 = "ttft_p95_s"
    PREEMPTIONS = "preemptions"
    LINK_SHARE = "link_share"


class MetricInfo(NamedTuple):
    """Label, unit and meaning of a metric."""

    label: str
    unit: str
    definition: str


METRICS: dict[Metric, MetricInfo] = {
    Metric.DECODE: MetricInfo(
        "decode, total", "tok/s", "generated tokens / wall time, over the last ticks, all requests together"
    ),
    Metric.DECODE_EACH: MetricInfo(
        "decode, each",
        "tok/s",
        "tokens after the first of each request / seconds of decoding, summed over requests; else decode, "
        "total / mean number of requests that decode",
    ),
    Metric.PROMPT_SPEED: MetricInfo(
        "prompt",
        "tok/s",
        "prompt tokens really computed (cached ones excluded) / time spent computing them, last 60 s; unknown while "
        "none is computed",
    ),
    Metric.PREFILL: MetricInfo(
        "prompt load", "tok/s", "prompt tokens really computed (cached ones excluded) / wall time"
    ),
    Metric.PREFIX_HIT: MetricInfo(
        "prefix", "share", "prompt tokens found in the prefix cache / prompt tokens looked up, last 60 s"
    ),
    Metric.PREFIX_HIT_LIFETIME: MetricInfo("prefix lifetime", "share", "the same since the engine was ready here"),
    Metric.KV_USED: MetricInfo("kv", "share", "KV cache in use / KV cache"),
    Metric.KV_CAPACITY: MetricInfo("kv capacity", "tokens", "tokens that the KV cache can hold"),
    Metric.RUNNING: MetricInfo("running", "requests", "requests the engine works on"),
    Metric.WAITING: MetricInfo("waiting", "requests", "requests queued inside the engine"),
    Metric.ACCEPTANCE: MetricInfo("acceptance", "share", "accepted draft tokens / drafted tokens, last 60 s"),
    Metric.ACCEPTANCE_LENGTH: MetricInfo(
        "mean acceptance length", "tokens", "1 + accepted draft tokens / drafts, last 60 s"
    ),
    Metric.TTFT_P50: MetricInfo(
        "ttft p50",
        "s",
        "median time to first token, last 60 s: of the requests through the gateway as it timed them, else read off "
        "the buckets of the engine's histogram (~)",
    ),
    Metric.TTFT_P95: MetricInfo("ttft p95", "s", "95th percentile of the same"),
    Metric.PREEMPTIONS: MetricInfo(
        "preemptions", "requests", "requests thrown out of the KV cache since the engine started"
    ),
    Metric.LINK_SHARE: MetricInfo(
        "link, at least",
        "share",
        "bytes on the link in its busier direction / (the link's rate x wall time), while requests run: a lower bound "
        "of the share of a step that the link takes, as latency and waiting are not in it",
    ),
}

_BY_GATEWAY = {
    Metric.DECODE: "decode_tok_s",
    Metric.DECODE_EACH: "decode_each_tok_s",
    Metric.PROMPT_SPEED: "prompt_tok_s",
    Metric.RUNNING: "in_flight",
    Metric.TTFT_P50: "ttft_p50_s",
    Metric.TTFT_P95: "ttft_p95_s",
}
"""Fields of GatewayFigures that stand in for an engine's own figures."""

STALE_S = 3.0
"""Seconds after which a figure is old: three missed ticks."""
_TIMED = frozenset({Metric.TTFT_P50, Metric.TTFT_P95})
"""Figures that the gateway measures and an engine's histogram tells roughly: 1.75 s of 1.008 s in vLLM's buckets."""


class Figure(NamedTuple):
    """Value of a metric."""

    value: float | None = None
    estimated: bool = False
    """Whether it is shown with "~": the gateway's estimate of what the engine does not tell, or read off buckets."""


class EngineSample(Frozen):
    """Figures of one engine at one tick; an engine that reports none has the gateway's alone."""

    at: float
    """Time of the last answer behind the values, Unix seconds; older than the sample while the engine is silent."""
    rate_s: float | None = None
    """Seconds until `at` that the engine's own rates cover; None before the second answer."""
    window_s: float | None = None
    """Seconds until `at` that its shares and quantiles cover."""
    values: dict[Metric, float | None] = {}
    acceptance_at: tuple[float, ...] | None = None
    """Accepted / drafts for each draft position, over the last 60 s; None without speculation or drafts."""
    error: str | None = None
    """Error of the last scrape; None when it succeeded."""
    gateway: GatewayFigures | None = None
    """The gateway's own count; None where nobody counts."""

    @field_validator("values", mode="before")
    @classmethod
    def _without_unknown(cls, values: Any) -> Any:
        """Leave out metrics of a newer daemon."""
        known = Metric._value2member_map_
        return {key: value for key, value in values.items() if key in known} if isinstance(values, dict) else values

    def get(self, metric: Metric) -> float | None:
        return self.values.get(metric)

    def figure(self, metric: Metric) -> Figure:
        own, field = self.values.get(metric), _BY_GATEWAY.get(metric)
        counted = None if field is None or self.gateway is None else getattr(self.gateway, field)
        is_better = own is None or metric in _TIMED
        if counted is not None and is_better:
            return Figure(float(counted), metric not in _TIMED)
        return Figure(own, own is not None and metric in _TIMED)


class Memory(Frozen):
    """The box's unified memory. Bytes; `pressure` is PSI "full avg10" as a share of time, 0..1."""

    total: int
    available: int
    free: int
    page_cache: int | None = None
    """Reclaimable: page cache and slab, as the kernel counts it (Cached + SReclaimable - Shmem)."""
    swap_total: int | None = None
    swap_used: int | None = None
    pressure: float | None = None
    engines: dict[str, int | None] = {}
    """Memory of each profile's processes. On a GB10 NVML's figure, plus resident host memory where NVML is silent."""
    strangers: tuple[ForeignContainer, ...] = ()
    reserve: int = 0
    """Memory that admission keeps free."""


class Gpu(Frozen):
    """The GPU, as far as the driver tells. On a GB10 many of these are not supported and stay None."""

    name: str | None = None
    utilization: float | None = None
    """0..1"""
    power_w: float | None = None
    """Power of the GPU alone."""
    board_power_w: float | None = None
    """Power of the whole box; None without a sensor, as on most."""
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    driver: str | None = None

    @property
    def unified(self) -> bool:
        """Whether the GPU takes its memory from the kernel's own pool, as a DGX Spark's does."""
        return self.name is not None and "GB10" in self.name


class LinkSample(Frozen):
    """Traffic of one interface or RDMA port over the last tick. Bytes per second of wall time; None is unknown."""

    name: str
    """Interface name, or name of the RDMA device."""
    rdma: bool = False
    """Whether these are an RDMA port's counters (in units of four octets, multiplied by 4): TCP's do not see them."""
    received_bytes_s: float | None = None
    sent_bytes_s: float | None = None
    received_bytes: int | None = None
    """Bytes since the connection to the node was made; an interval that the counters do not tell is left out."""
    sent_bytes: int | None = None
    errors: int | None = None
    """Receive and transmit errors since the connection to the node was made."""
    up: bool | None = None
    rate_gbit_s: float | None = None


class NodeSample(Frozen):
    """Figures of one node at about the same moment."""

    at: float
    """Time of the reading by this box's clock, Unix seconds; older than the sample while the node is silent."""
    memory: Memory | None = None
    gpu: Gpu | None = None
    links: tuple[LinkSample, ...] = ()


class Sample(Frozen):
    """All figures of about the same moment. Unix seconds."""

    at: float
    engines: dict[str, EngineSample] = {}
    memory: Memory | None = None
    gpu: Gpu | None = None
    nodes: dict[str, NodeSample] = {}
    """Figures of the other nodes, and the link's of this one under LOCAL; empty with one node."""
    low_power: bool = False
    """Whether the GPU is stuck in its low-power state, so that every speed is that of a crippled box."""
    requests: dict[str, LiveRequest] = {}
    energy: Energy | None = None
    """Energy since the daemon started; None without a sensor."""

    @property
    def decode(self) -> Figure:
        """Decode rate of the box: the sum over all engines that tell one; a silent engine's last one is in no sum."""
        told = [each.figure(Metric.DECODE) for each in self.engines.values() if self.at - each.at <= STALE_S]
        known = [figure for figure in told if figure.value is not None]
        if not known:
            return Figure()
        return Figure(sum(figure.value or 0.0 for figure in known), any(figure.estimated for figure in known))


class DiskRate(NamedTuple):
    """A reading of weights, past what the page cache had of them."""

    file: str
    bytes: int
    s: float

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.s
