"""What a run is and what it measured: the values that the runner writes and every report reads. Pure.

Owns: the definitions of each figure of one request, and which samples count. Must not know: files (folder.py), HTTP,
statistics over several samples.
Rule 1: a sample keeps its raw timestamps; every rate is computed from them here and nowhere else.
Rule 2: a cell of a launch is an atom. Samples count once a Cell of the same launch and key that is not void follows
them in the file; so a run that was killed measures the cell it was in again, and no finished one.
Rule 3: None was not measured or cannot be told; zero is measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter

from sparkdash.bench.compare import Noise
from sparkdash.domain.base import Frozen

FORMAT = 1
"""Of run.json and records.jsonl; raised whenever an older sparkdash could no longer read them."""

DECODE_TOKENS = 16
"""Fewer tokens than this give no decode rate: the first and the last chunk would weigh too much."""

WARMING = "the engine was still warming up"

_NS = 1e9


class Kind(StrEnum):
    """What a cell's samples are compared by."""

    SPEED = "speed"
    """Rates and latencies."""
    PREFIX = "prefix"
    """The share of prompt tokens that came from the prefix cache."""
    MATH = "math"
    """Right answers."""
    IDENTICAL = "identical"
    """Greedy outputs, equal to the baseline's or not."""


class Mode(StrEnum):
    """How much is spent, and so how much may be claimed."""

    SCREEN = "screen"
    STANDARD = "standard"
    CAREFUL = "careful"


class CellKey(Frozen):
    """One cell of a suite's table; hashable. Lengths in tokens."""

    suite: str
    context: int = Field(ge=0)
    """The whole prompt, its template and question included, as the engine counts it; 0: the question alone."""
    output: int = Field(gt=0)
    """Forced length; for math the most that may be generated."""
    concurrency: int = Field(default=1, gt=0)
    """Requests at once, in a closed loop."""
    warm: bool = False
    """Was the same context sent before, so that the prefix cache holds it?"""
    kind: Kind = Kind.SPEED
    text: str = ""
    """The class of prompt (code, prose, JSON, chat); empty: the suite's whole panel."""


class Arm(Frozen):
    """One of the things compared."""

    name: str
    """Short and unique in the run: the column's head."""
    profile: str
    """The profile, or the URL of a server that is not ours."""
    parameters: dict[str, str] = {}
    """What of the profile is changed for this arm: a sweep."""
    impossible: str | None = None
    """Why it cannot be run (a head that the checkpoint lacks); it has no launches, and its cells say this."""


class Slot(Frozen):
    """One place in the order of launches."""

    arm: str
    block: int = Field(ge=0)
    """Launches of one block are compared with each other (order.py)."""


class PlannedCell(Frozen):
    """A cell and how often it is measured in a launch."""

    key: CellKey
    reps: int = Field(gt=0)
    """Repetitions in one launch; for math the number of questions."""
    launches: tuple[int, ...] | None = None
    """In these launches only; None is in all."""


class Host(Frozen):
    """The box, as far as it was told."""

    name: str | None = None
    gpu: str | None = None
    driver: str | None = None
    kernel: str | None = None
    memory_bytes: int | None = None


class Run(Frozen):
    """What was asked, on which box: the identity of a run. It lies in run.json."""

    format: int = FORMAT
    id: str
    suite: str
    suite_version: str
    suite_hash: str
    """SHA-256 of the suite as it was measured; figures of other hashes are not compared."""
    arms: tuple[Arm, ...]
    baseline: str
    """The name of the arm that the others are compared with."""
    mode: Mode
    seed: int
    created_at: datetime
    order: tuple[Slot, ...]
    """The launches, first to last; a launch's index is its place here."""
    cells: tuple[PlannedCell, ...]
    host: Host = Host()
    target: str = "gateway"
    """Where requests were sent: gateway, direct, or url."""
    model: str | None = None
    """What was asked for of a server that is not ours; None: the first that it lists."""
    simulated: bool = False
    """At least one engine was a simulated one; every report says so."""
    noise: dict[str, Noise] = {}
    """By metric, what the box was calibrated to when the run began: no smaller difference is claimed."""
    version: str | None = None
    """Of the sparkdash that measured."""
    ended_at: datetime | None = None
    """When the last gap was filled."""

    def arm(self, name: str) -> Arm:
        """The arm of that name.

        Raises:
            KeyError: there is none.
        """
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)

    def planned(self, launch: int) -> tuple[PlannedCell, ...]:
        """The cells of one launch."""
        return tuple(cell for cell in self.cells if cell.launches is None or launch in cell.launches)


class Provenance(Frozen):
    """What really ran in a launch."""

    profile: str | None = None
    fingerprint: str | None = None
    argv: tuple[str, ...] = ()
    """The whole command, secrets masked."""
    image: str | None = None
    image_digest: str | None = None
    engine: str | None = None
    """Its kind: vllm, sglang, llamacpp, trtllm, sim."""
    engine_version: str | None = None
    model: str | None = None
    model_revision: str | None = None
    tokenizer_sha256: str | None = None
    """Of the ids that it gives a fixed text."""
    kv_dtype: str | None = None
    """As the engine resolved it, from its log; never what was asked for."""
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


class Launch(Frozen):
    """One start of an engine: the experimental unit. A launch that was broken off has several, the last one goes on."""

    record: Literal["launch"] = "launch"
    arm: str
    index: int = Field(ge=0)
    block: int = Field(ge=0)
    started_at: datetime
    provenance: Provenance = Provenance()


class Sample(Frozen):
    """One request. Timestamps in nanoseconds of one monotonic clock of the client; tokens as the engine counted them."""

    record: Literal["sample"] = "sample"
    cell: CellKey
    arm: str
    launch: int = Field(ge=0)
    rep: int = Field(ge=0)
    stream: int = Field(default=0, ge=0)
    """Which of the cell's concurrent requests."""
    prompt_id: str
    """Equal in all arms for the same text: what is paired."""
    t0_ns: int
    """The request is written."""
    response_ns: int | None = None
    """First event with choices, a role-only one included."""
    token_ns: int | None = None
    """First event that carries content, reasoning, or a tool call."""
    visible_ns: int | None = None
    """First event that carries content that a reader sees."""
    last_ns: int | None = None
    """Last event that carries a token; neither the usage event nor [DONE]."""
    n: int | None = None
    """Completion tokens from `usage`, reasoning included."""
    k1: int = Field(default=1, ge=1)
    """Tokens in the first event that carries any."""
    visible: int | None = None
    """Tokens outside the reasoning."""
    chunks: int | None = None
    """Events that carry tokens."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    lag_ms: float | None = None
    """The most that its timestamps may be late: by the client's own loop, where the kernel did not note each arrival."""
    text: str | None = None
    """What was answered; kept where it is judged (math, identical)."""
    output_sha256: str | None = None
    void: str | None = None
    """Why it does not count, in words."""

    @property
    def ttfr_s(self) -> float | None:
        """Time to the first response event."""
        return _span(self.t0_ns, self.response_ns)

    @property
    def ttft_s(self) -> float | None:
        """Time to the first token, reasoning included."""
        return _span(self.t0_ns, self.token_ns)

    @property
    def ttfv_s(self) -> float | None:
        """Time to the first visible token."""
        return _span(self.t0_ns, self.visible_ns)

    @property
    def e2e_s(self) -> float | None:
        """Time to the last token."""
        return _span(self.t0_ns, self.last_ns)

    @property
    def decode_tok_s(self) -> float | None:
        """(n - k1) / (last - first token): pure decoding. None when fewer than 15 tokens came after the first moment."""
        span = _span(self.token_ns, self.last_ns)
        known = span and self.n is not None and self.n - self.k1 >= DECODE_TOKENS - 1
        return (self.n - self.k1) / span if known else None  # type: ignore[operator]

    @property
    def e2e_tok_s(self) -> float | None:
        """n / e2e, prefill included: the rate of tables made with a blocking client."""
        return self.n / self.e2e_s if self.n is not None and self.e2e_s else None

    @property
    def visible_tok_s(self) -> float | None:
        """Visible tokens / e2e: the rate with the reasoning as overhead."""
        return self.visible / self.e2e_s if self.visible is not None and self.e2e_s else None


class Cell(Frozen):
    """A cell of a launch is measured: it closes the samples of that launch and key which came before it."""

    record: Literal["cell"] = "cell"
    key: CellKey
    arm: str
    launch: int = Field(ge=0)
    started_at: datetime
    ended_at: datetime
    drafts: int | None = None
    """Verify steps with speculated tokens, by the engine's counters, between start and end."""
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    accepted_at: tuple[int, ...] = ()
    """Accepted tokens by speculated position, first to last."""
    prefix_hits: int | None = None
    """Prompt tokens found in the prefix cache, by the engine's counters."""
    prefix_queries: int | None = None
    clock_mhz: float | None = None
    """The lowest SM clock under load."""
    temperature_c: float | None = None
    """The highest."""
    power_w: float | None = None
    """The mean."""
    late_p99_ms: float | None = None
    """The client's own cost: of the reads of samples that count, 99 % were made within so long of the bytes' arrival. None:
    the kernel does not tell (stopwatch.py)."""
    warming: int = 0
    """So many of its samples, the first ones, do not count: the engine was still warming up."""
    void: str | None = None
    """Why none of its samples counts, in words: `clock fell to 820 MHz`."""

    @property
    def acceptance_length(self) -> float | None:
        """Mean tokens per verify step: 1 + accepted / drafts."""
        return 1 + self.accepted_tokens / self.drafts if self.drafts and self.accepted_tokens is not None else None

    @property
    def acceptance(self) -> float | None:
        """Accepted / drafted tokens, 0..1."""
        known = self.draft_tokens and self.accepted_tokens is not None
        return self.accepted_tokens / self.draft_tokens if known else None  # type: ignore[operator]

    @property
    def prefix_hit_rate(self) -> float | None:
        """Hits / queries of prompt tokens, 0..1."""
        known = self.prefix_queries and self.prefix_hits is not None
        return self.prefix_hits / self.prefix_queries if known else None  # type: ignore[operator]


Record = Annotated[Launch | Sample | Cell, Field(discriminator="record")]
RECORD: TypeAdapter[Launch | Sample | Cell] = TypeAdapter(Record)


class Gap(Frozen):
    """What is still to be measured of one cell in one launch."""

    launch: int
    arm: str
    cell: CellKey
    reps: tuple[int, ...]


class Results(Frozen):
    """A run and what its file holds, in the file's order."""

    run: Run
    launches: tuple[Launch, ...] = ()
    cells: tuple[Cell, ...] = ()
    """Those that are void too."""
    samples: tuple[Sample, ...] = ()
    """Of finished cells; `void` tells which do not count. Samples of a void cell carry its reason."""
    damaged: tuple[int, ...] = ()
    """Lines that could not be read (1 is the first): what they held is a gap."""

    @cached_property
    def _good(self) -> dict[tuple[str, CellKey], list[Sample]]:
        found: dict[tuple[str, CellKey], list[Sample]] = defaultdict(list)
        for one in self.samples:
            if one.void is None:
                found[one.arm, one.cell].append(one)
        return found

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, but what was derived from the samples is derived anew: a plain copy would keep it."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("_good", None)
        return copied

    def good(self, arm: str, key: CellKey) -> Sequence[Sample]:
        """The samples that count, in the order of measuring."""
        return self._good.get((arm, key), ())

    def gaps(self) -> tuple[Gap, ...]:
        """Cells x repetitions x launches that are not measured, in the order of launches; empty when the run is whole."""
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


def gather(run: Run, records: Iterable[Launch | Sample | Cell], damaged: Sequence[int] = ()) -> Results:
    """The results that records in the order of writing amount to, by rule 2."""
    launches: list[Launch] = []
    cells: list[Cell] = []
    samples: list[Sample] = []
    pending: dict[tuple[int, CellKey], list[Sample]] = defaultdict(list)
    for record in records:
        if isinstance(record, Launch):
            launches.append(record)
            pending.clear()
        elif isinstance(record, Sample):
            pending[record.launch, record.cell].append(record)
        else:
            closed = pending.pop((record.launch, record.key), [])
            cells.append(record)
            samples += _judged(record, closed)
    return Results(
        run=run, launches=tuple(launches), cells=tuple(cells), samples=tuple(samples), damaged=tuple(damaged)
    )


def _judged(cell: Cell, samples: Sequence[Sample]) -> list[Sample]:
    """Its samples, with what the cell says of them."""
    reasons = [cell.void or (WARMING if at < cell.warming else None) for at in range(len(samples))]
    return [
        one.model_copy(update={"void": reason}) if reason and one.void is None else one
        for one, reason in zip(samples, reasons, strict=True)
    ]


def aggregate_tok_s(streams: Sequence[Sample]) -> float | None:
    """Of the concurrent requests of one repetition: sum of n / (last end - first start). None while one lacks a figure."""
    tokens = [one.n for one in streams if one.n is not None]
    ends = [one.last_ns for one in streams if one.last_ns is not None]
    if not streams or len(tokens) < len(streams) or len(ends) < len(streams):
        return None
    span = _span(min(one.t0_ns for one in streams), max(ends))
    return sum(tokens) / span if span else None


def _span(start_ns: int | None, end_ns: int | None) -> float | None:
    """Seconds between two timestamps; None unless both were taken."""
    return None if start_ns is None or end_ns is None else (end_ns - start_ns) / _NS
