"""Measurement of one cell in one launch: warm-up, repetitions, and the engine's counters around them.

Rule 1: prompts are built before the clock runs. Only the requests run while it does.
Rule 2: a repetition counts as a whole: if one of its concurrent requests does not count, none does.
Rule 3: repetitions of an engine that is still warming up do not count, and are repeated once.
"""

import gc
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sparkdash.bench.measure import voids
from sparkdash.bench.measure.measured_engine import MeasuredEngine, PromptTokenCounter
from sparkdash.bench.measure.stream_answer import StreamedAnswer
from sparkdash.bench.measure.voids import BoxReading
from sparkdash.bench.plan import math_questions, prompts, suites
from sparkdash.bench.plan.prompts import Prompt, PromptIndex
from sparkdash.bench.results import WARMING, CellRecord, RequestSample
from sparkdash.bench.run import CellKey, Kind
from sparkdash.telemetry.reading import Reading

TRIES = 3
TAKEN_OVER = (
    "t0_ns", "token_ns", "visible_ns", "last_ns", "itl_p99_ns", "n", "k1", "k1_assumed", "visible", "prompt_tokens",
    "cached_tokens", "finish_reason",
)  # fmt: skip
WARM_UP_TOKENS = 32
WARM_UP = -1
"""Repetition number of requests sent before the clock runs."""
WARM_UP_QUESTION = 1_000_000
"""Question number of the warm-up in a math cell; no suite asks it."""


@dataclass(slots=True)
class CellContext:
    """Values shared by all cells of a launch."""

    measured: MeasuredEngine
    counter: PromptTokenCounter
    seed: int
    arm: str
    launch: int
    salt: str
    """Separates this launch from others in the prefix cache."""
    look: Callable[[], Awaitable[BoxReading]]
    lag_limit_ms: float
    chats: Sequence[suites.Chat] = ()
    fastest_mhz: float | None = None

    async def prompt(self, key: CellKey, place: PromptIndex) -> Prompt:
        if key.kind is Kind.MATH:
            asked = math_questions.question(self.seed, WARM_UP_QUESTION if place.rep == WARM_UP else place.rep)
            return Prompt(asked.id, asked.prompt)
        if key.text == suites.TEXT:
            return prompts.chat_prompt(self.chats, place, f"{self.seed}|{key.output}|{self.salt}")
        return await prompts.build_prompt(self.seed, key, place, self.counter)

    async def send(self, key: CellKey, batch: Sequence[Prompt], tokens: int | None = None) -> list[StreamedAnswer]:
        forced = key.kind in (Kind.SPEED, Kind.PREFIX)
        contents = [prompt.content for prompt in batch]
        return await self.measured.ask_all(contents, tokens or key.output, salt=self.salt, forced=forced)


async def measure_cell(
    cell_context: CellContext,
    key: CellKey,
    reps: Sequence[int],
    write: Callable[[RequestSample], None],
    told: Callable[[RequestSample], None],
) -> CellRecord:
    """Measure these repetitions; return the closing record. Raises UpstreamError: the engine counts prompts no more.

    `write` keeps a sample, `told` shows it.
    """
    started_at = datetime.now(UTC)
    sent = {rep: await _built(cell_context, key, rep) for rep in reps}
    if refusal := await _warm_up(cell_context, key):
        return CellRecord(
            key=key, arm=cell_context.arm, launch=cell_context.launch, started_at=started_at,
            ended_at=datetime.now(UTC), void=f"error: {refusal}",
        )  # fmt: skip
    tries = _Tries(cell_context, key, sent, write, told, looks=[await cell_context.look()])
    before = await cell_context.measured.counters()
    with _undisturbed():
        done = await tries.measure(reps, range(TRIES))
        cold = _cold(key, done)
        warming = tries.written.index(done[cold - 1][-1]) + 1 if cold else 0
        if cold:
            again = await tries.measure([one[0].rep for one in done[:cold]], range(TRIES, 2 * TRIES))
            done = [*done[cold:], *again]
    after = await cell_context.measured.counters()
    closed = _close_cell(cell_context, key, started_at, tries.looks, before, after)
    void = closed.void
    if cold and _cold(key, done):
        void = void or f"{WARMING} after {cold + len(done)} repetitions"
    late_ns = sorted(tries.late_ns)
    late_p99_ms = late_ns[int(0.99 * len(late_ns))] / 1e6 if late_ns else None
    return closed.replace(late_p99_ms=late_p99_ms, warming=warming, void=void)


@dataclass(slots=True)
class _Tries:
    context: CellContext
    key: CellKey
    sent: Mapping[int, Sequence[Prompt]]
    write: Callable[[RequestSample], None]
    told: Callable[[RequestSample], None]
    looks: list[BoxReading]
    late_ns: list[int] = field(default_factory=list)
    written: list[RequestSample] = field(default_factory=list)

    async def measure(self, reps: Sequence[int], attempts: range) -> list[list[RequestSample]]:
        """Measure each repetition until a try counts; leave out those without such a try."""
        done = [await self._first_good(rep, attempts) for rep in reps]
        return [samples for samples in done if samples is not None]

    async def _first_good(self, rep: int, attempts: range) -> list[RequestSample] | None:
        for attempt in attempts:
            batch = self.sent[rep] if attempt == 0 else await _built(self.context, self.key, rep, attempt)
            began = datetime.now(UTC).timestamp()
            samples = await _repetition(self.context, self.key, rep, batch, self.late_ns)
            self.looks.append(_under_load(await self.context.look(), began))
            for sample in samples:
                self.write(sample)
                self.told(sample)
            self.written.extend(samples)
            if all(sample.void is None for sample in samples):
                return samples
        return None


def _cold(key: CellKey, repetitions: Sequence[Sequence[RequestSample]]) -> int:
    """Count the first repetitions measured while the engine warmed up, by first token or end."""
    if key.kind is not Kind.SPEED:
        return 0
    ends = [max(one.e2e_s or 0.0 for one in streams) for streams in repetitions]
    firsts = [max(one.ttft_s or 0.0 for one in streams) for streams in repetitions]
    return max(voids.count_warm_up(ends), voids.count_warm_up(firsts))


async def _built(cell_context: CellContext, key: CellKey, rep: int, attempt: int = 0) -> list[Prompt]:
    return [await cell_context.prompt(key, PromptIndex(rep, stream, attempt)) for stream in range(key.concurrency)]


async def _warm_up(cell_context: CellContext, key: CellKey) -> str | None:
    """Send as many concurrent requests as the cell will, so that every kernel of this shape is compiled. In a prefix
    cell this is also the first use of the shared text. Returns the error when every request failed, else None.
    """
    batch = await _built(cell_context, key, WARM_UP)
    answers = await cell_context.send(key, batch, min(key.output, WARM_UP_TOKENS))
    errors = [answer.error for answer in answers if answer.error]
    return errors[0] if len(errors) == len(answers) else None


async def _repetition(
    cell_context: CellContext, key: CellKey, rep: int, batch: Sequence[Prompt], late_ns: list[int]
) -> list[RequestSample]:
    if key.warm and key.kind is Kind.SPEED:
        await cell_context.send(key, batch, 1)
    answers = await cell_context.send(key, batch)
    reasons = _void_reasons(cell_context, key, answers)
    if not any(reasons):
        late_ns += (late for answer in answers for late in answer.late_ns)
    where: dict[str, Any] = {"cell": key, "arm": cell_context.arm, "launch": cell_context.launch, "rep": rep}
    return [
        RequestSample(
            **where,
            **{name: getattr(answer, name) for name in TAKEN_OVER},
            stream=stream,
            prompt_id=prompt.id,
            text=answer.text if key.kind is Kind.MATH else None,
            void=reason,
        )
        for stream, (prompt, answer, reason) in enumerate(zip(batch, answers, reasons, strict=True))
    ]


def _void_reasons(cell_context: CellContext, key: CellKey, answers: Sequence[StreamedAnswer]) -> list[str | None]:
    """Return why each answer does not count, or None; one void answer voids those beside it."""
    counter, lag_limit_ms = cell_context.counter, cell_context.lag_limit_ms
    own = [
        voids.request_void_reason(
            answer, key, exact=counter.exact, template=counter.template, lag_limit_ms=lag_limit_ms
        )
        for answer in answers
    ]
    first = next((reason for reason in own if reason), None)
    return [reason or (first and f"beside another: {first}") for reason in own]


@contextmanager
def _undisturbed() -> Iterator[None]:
    gc.collect(1)  # what is young; the whole heap would take a tenth of a second before each cell
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _under_load(look: BoxReading, began: float) -> BoxReading:
    """Drop a clock that was read before the repetition began, as it is an idle box's."""
    if look.at is not None and look.at >= began:
        return look
    return replace(look, clock_mhz=None)


def _close_cell(
    cell_context: CellContext,
    key: CellKey,
    started_at: datetime,
    looks: Sequence[BoxReading],
    before: Reading | None,
    after: Reading | None,
) -> CellRecord:
    loaded = looks[1:]
    clocks = _known(look.clock_mhz for look in loaded)
    known = () if cell_context.fastest_mhz is None else (cell_context.fastest_mhz,)
    cell_context.fastest_mhz = max((*clocks, *known), default=None)
    idle = _under_load(looks[0], float("inf"))  # its clock says nothing
    void = voids.cell_void_reason([idle, *loaded], cell_context.fastest_mhz)
    counts = _counted(before, after)
    if counts is None:
        void = void or "the engine was started anew"
    return CellRecord(
        key=key,
        arm=cell_context.arm,
        launch=cell_context.launch,
        started_at=started_at,
        ended_at=datetime.now(UTC),
        clock_mhz=min(clocks, default=None),
        temperature_c=max(_known(look.temperature_c for look in looks), default=None),
        void=void,
        **(counts or {}),
    )


def _known(figures: Iterable[float | None]) -> list[float]:
    return [figure for figure in figures if figure is not None]


def _counted(before: Reading | None, after: Reading | None) -> dict[str, Any] | None:
    """Return the fields of the engine's counters; empty without counters, None when the engine was restarted."""
    if before is None or after is None:
        return {}
    grown = after.counters.since(before.counters)
    if grown.fell or before.started != after.started:
        return None
    at = {place: count - before.accepted_at.get(place, 0.0) for place, count in after.accepted_at.items()}
    return {
        "drafts": _whole(grown.drafts),
        "accepted_tokens": _whole(grown.accepted),
        "accepted_at": tuple(int(at[place]) for place in sorted(at)),
        "prefix_hits": _whole(grown.hits),
        "prefix_queries": _whole(grown.queries),
    }


def _whole(count: float | None) -> int | None:
    return None if count is None else int(count)
