"""Records of a run, a line each for launches, requests and finished cells; which samples count, and which are missing.

Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from sparkdash.bench.run import CellKey, Run
from sparkdash.domain.base import Frozen, WithCachedProperties

DECODE_TOKENS = 16
"""Least tokens for a decode rate. With fewer the first and the last chunk weigh too much."""

_NS = 1e9


class Provenance(Frozen):
    """Facts about the engine that really ran in a launch."""

    profile: str | None = None
    fingerprint: str | None = None
    argv: tuple[str, ...] = ()
    image: str | None = None
    image_digest: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    model_revision: str | None = None
    tokenizer_sha256: str | None = None
    """Digest of the token ids of a fixed text."""
    kv_dtype: str | None = None
    """Type that the engine resolved, from its log; never the requested one."""
    kv_tokens: int | None = None
    """Tokens that the KV cache holds, by the engine's own figure."""
    weights_gib: float | None = None
    """Weights on each node, by the engine's log."""
    context_limit: int | None = None
    thinking: bool | None = None
    temperature: float | None = None
    speculation: str | None = None
    """Method and number of speculated tokens, as in `eagle3 x 1`."""
    driver: str | None = None
    kernel: str | None = None
    clock_mhz: float | None = None
    temperature_c: float | None = None
    available_bytes: int | None = None
    startup_s: float | None = None


class LaunchRecord(Frozen):
    """Start of an engine: the experimental unit. An interrupted launch has several records; the last one counts."""

    record: Literal["launch"] = "launch"
    arm: str
    index: int = Field(ge=0)
    block: int = Field(ge=0)
    started_at: datetime
    provenance: Provenance = Provenance()


class RequestSample(Frozen):
    """Measured request. Times in nanoseconds of one monotonic client clock; tokens as the engine counted them."""

    record: Literal["sample"] = "sample"
    cell: CellKey
    arm: str
    launch: int = Field(ge=0)
    rep: int = Field(ge=0)
    stream: int = Field(default=0, ge=0)
    prompt_id: str
    """Identity of the text, equal in all arms; pairs are matched by it."""
    t0_ns: int
    """Moment at which the request is written."""
    token_ns: int | None = None
    """First event that carries content, reasoning, or a tool call."""
    visible_ns: int | None = None
    """First event that carries content that a reader sees."""
    last_ns: int | None = None
    """Last event that carries a token; neither the usage event nor [DONE]."""
    itl_p99_ns: int | None = None
    """99 % of the waits between moments at which tokens came were at most this long."""
    n: int | None = None
    """Completion tokens from `usage`, reasoning included."""
    k1: int = Field(default=1, ge=1)
    """Tokens in the first event that carries any."""
    k1_assumed: bool = False
    """Whether `k1` is an estimate, because the server does not count each chunk. The decode rate hangs on it."""
    visible: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    text: str | None = None
    """Answer text; kept where it is judged (math)."""
    void: str | None = None

    @property
    def ttft_s(self) -> float | None:
        """Time to the first token, reasoning included."""
        return _span(self.t0_ns, self.token_ns)

    @property
    def ttfv_s(self) -> float | None:
        """Time to the first visible token."""
        return _span(self.t0_ns, self.visible_ns)

    @property
    def itl_p99_s(self) -> float | None:
        """99th percentile of the waits between tokens; None with fewer than DECODE_TOKENS."""
        return None if self.itl_p99_ns is None or (self.n or 0) < DECODE_TOKENS else self.itl_p99_ns / _NS

    @property
    def e2e_s(self) -> float | None:
        return _span(self.t0_ns, self.last_ns)

    @property
    def decode_tok_s(self) -> float | None:
        """Pure decode rate, (n - k1) / (last - first token). None with fewer than 15 tokens after the first moment."""
        span = _span(self.token_ns, self.last_ns)
        known = span and self.n is not None and self.n - self.k1 >= DECODE_TOKENS - 1
        return (self.n - self.k1) / span if known else None  # type: ignore[operator]

    @property
    def e2e_tok_s(self) -> float | None:
        """Rate with prefill, n / e2e: comparable with tables of blocking clients."""
        return self.n / self.e2e_s if self.n is not None and self.e2e_s else None

    @property
    def visible_tok_s(self) -> float | None:
        """Rate with the reasoning as overhead, visible tokens / e2e."""
        return self.visible / self.e2e_s if self.visible is not None and self.e2e_s else None


class CellRecord(Frozen):
    """Completion of a cell in a launch. Closes the earlier samples of that launch and key."""

    record: Literal["cell"] = "cell"
    key: CellKey
    arm: str
    launch: int = Field(ge=0)
    started_at: datetime
    ended_at: datetime
    drafts: int | None = None
    """Verify steps with speculated tokens, by the engine's counters, between start and end."""
    accepted_tokens: int | None = None
    accepted_at: tuple[int, ...] = ()
    """Accepted tokens by speculated position, first to last."""
    prefix_hits: int | None = None
    """Prompt tokens found in the prefix cache, by the engine's counters."""
    prefix_queries: int | None = None
    clock_mhz: float | None = None
    """Lowest SM clock under load."""
    temperature_c: float | None = None
    late_p99_ms: float | None = None
    """Client overhead: 99 % of the reads of valid samples came within this time of the bytes' arrival.
    None: the kernel reports no arrivals (http_client.py).
    """
    warming: int = 0
    """Number of first samples that do not count, as the engine was still warming up."""
    void: str | None = None
    """Reason why no sample counts: `clock fell to 820 MHz`."""


Record = Annotated[LaunchRecord | RequestSample | CellRecord, Field(discriminator="record")]
RECORD: TypeAdapter[LaunchRecord | RequestSample | CellRecord] = TypeAdapter(Record)


def aggregate_tok_s(streams: Sequence[RequestSample]) -> float | None:
    """Return sum of n / (last end - first start) of concurrent requests. None while one lacks a figure."""
    tokens = [one.n for one in streams if one.n is not None]
    ends = [one.last_ns for one in streams if one.last_ns is not None]
    if not streams or len(tokens) < len(streams) or len(ends) < len(streams):
        return None
    span = _span(min(one.t0_ns for one in streams), max(ends))
    return sum(tokens) / span if span else None


def _span(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / _NS


WARMING = "the engine was still warming up"


class Gap(Frozen):
    """Missing repetitions of one cell in one launch."""

    launch: int
    arm: str
    cell: CellKey
    reps: tuple[int, ...]


class Results(WithCachedProperties):
    """Run with the contents of its records file, in the file's order."""

    run: Run
    launches: tuple[LaunchRecord, ...] = ()
    cells: tuple[CellRecord, ...] = ()
    """Finished cells, void ones included."""
    samples: tuple[RequestSample, ...] = ()
    """Samples of finished cells. `void` marks those that do not count; a void cell passes on its reason."""
    damaged: tuple[int, ...] = ()
    """Numbers of unreadable lines (from 1). Their contents are gaps."""

    @cached_property
    def _good(self) -> dict[tuple[str, CellKey], list[RequestSample]]:
        found: dict[tuple[str, CellKey], list[RequestSample]] = defaultdict(list)
        for one in self.samples:
            if one.void is None:
                found[one.arm, one.cell].append(one)
        return found

    def good(self, arm: str, key: CellKey) -> Sequence[RequestSample]:
        """Return the samples that count, in the order of measuring."""
        return self._good.get((arm, key), ())

    def gaps(self) -> tuple[Gap, ...]:
        """Return the missing repetitions of cells in launch order; empty when the run is complete."""
        streams: dict[tuple[int, CellKey, int], set[int]] = defaultdict(set)
        for one in self.samples:
            if one.void is None:
                streams[one.launch, one.cell, one.rep].add(one.stream)
        found = []
        for index, slot in enumerate(self.run.order):
            for cell in self.run.planned(index):
                done = (len(streams.get((index, cell.key, rep), ())) for rep in range(cell.reps))
                if missing := tuple(rep for rep, here in enumerate(done) if here < cell.key.concurrency):
                    found.append(Gap(launch=index, arm=slot.arm, cell=cell.key, reps=missing))
        return tuple(found)


def gather(
    run: Run, records: Iterable[LaunchRecord | RequestSample | CellRecord], damaged: Sequence[int] = ()
) -> Results:
    """Build the results from records in the order of writing, by the module's rule."""
    launches: list[LaunchRecord] = []
    cells: list[CellRecord] = []
    samples: list[RequestSample] = []
    pending: dict[tuple[int, CellKey], list[RequestSample]] = defaultdict(list)
    for record in records:
        if isinstance(record, LaunchRecord):
            launches.append(record)
            pending.clear()
        elif isinstance(record, RequestSample):
            pending[record.launch, record.cell].append(record)
        else:
            closed = pending.pop((record.launch, record.key), [])
            cells.append(record)
            samples += _judged(record, closed)
    return Results(
        run=run, launches=tuple(launches), cells=tuple(cells), samples=tuple(samples), damaged=tuple(damaged)
    )


def _judged(cell: CellRecord, samples: Sequence[RequestSample]) -> list[RequestSample]:
    """Return the samples with the cell's own reasons applied."""
    reasons = [cell.void or (WARMING if at < cell.warming else None) for at in range(len(samples))]
    return [
        one.replace(void=reason) if reason and one.void is None else one
        for one, reason in zip(samples, reasons, strict=True)
    ]
