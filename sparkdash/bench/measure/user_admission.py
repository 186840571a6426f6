"""Measurement of a users cell: users with a long context join one by one until the engine queues or preempts.

Owns: the ramp, and when a user counts as admitted. Must not know: launches, files, how many users a cache should hold.
Rule 1: only the engine's own figures say that it queued or preempted. An engine without them is not measured.
Rule 2: a user counts once its answer has begun while all earlier ones still run, and nothing was queued or preempted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sparkdash.bench.measure.cell_measurement import CellContext, close_cell
from sparkdash.bench.measure.held_request import HeldRequest
from sparkdash.bench.plan import prompts
from sparkdash.bench.plan.prompts import Prompt, PromptIndex
from sparkdash.bench.records import CellRecord, RequestSample, UserAdmission
from sparkdash.bench.run import CellKey, Kind
from sparkdash.errors import UpstreamError
from sparkdash.telemetry.reading import Reading

MOST_USERS = 64
LOOK_S = 0.25
"""Interval at which the engine's figures are read."""
QUEUED_LOOKS = 4
"""Consecutive readings with a request in the queue after which the engine queues. Only those count between which the
engine made a token: during a long step it tells the queue of the step before.
"""
SILENT_LOOKS = 12
"""Consecutive readings without an answer after which the engine counts as lost."""
JOIN_S = 3600.0
"""Longest wait for a user's first token."""
IDLE_S = 30.0
"""Longest wait until the engine has dropped the requests."""
ANSWER_SHARE = 1 / 16
"""Largest share of a context that is left to the answer: a user's cache is nearly full when the answer begins."""
SLACK_TOKENS = 16
"""Room for a nonce that has more tokens than the first user's."""
UNTOLD = "the engine does not tell which requests run and wait"


async def measure_users(
    cell_context: CellContext,
    key: CellKey,
    reps: Sequence[int],
    write: Callable[[RequestSample], None],
    told: Callable[[RequestSample], None],
) -> CellRecord:
    """Measure these ramps and return the record that closes them. `write` keeps each sample; `told` shows it."""
    started_at = datetime.now(UTC)
    looks = [await cell_context.look()]
    before = await cell_context.measured.counters()
    for rep in reps:
        sample = await _sample(cell_context, key, rep)
        write(sample)
        told(sample)
        looks.append(await cell_context.look())
    after = await cell_context.measured.counters()
    return close_cell(cell_context, key, started_at, looks, before, after)


async def _sample(cell_context: CellContext, key: CellKey, rep: int) -> RequestSample:
    """Run one ramp; a refusal or a lost engine makes it void."""
    found: UserAdmission | None = None
    void: str | None = None
    began = time.perf_counter_ns()
    try:
        found = await _admitted(cell_context, key, rep)
        void = UNTOLD if found is None else None
    except (UpstreamError, TimeoutError) as error:
        void = f"error: {error}"
    return RequestSample(
        cell=key, arm=cell_context.arm, launch=cell_context.launch, rep=rep, prompt_id=f"users {key.context} {rep}",
        t0_ns=began, admission=found, void=void,
    )  # fmt: skip


async def _admitted(cell_context: CellContext, key: CellKey, rep: int) -> UserAdmission | None:
    """Return the outcome of one ramp; None when the engine does not tell its queue."""
    measured = cell_context.measured
    limit = await measured.context_limit()
    context = min(key.context, limit or key.context)
    answer = min(key.output, int(context * ANSWER_SHARE))
    first = await _first_prompt(cell_context, key, context - answer, rep)
    before = await measured.counters()
    if before is None or before.gauges.running is None or before.gauges.waiting is None:
        return None
    ramp = _Ramp(cell_context, answer, before, first)
    try:
        stopped_by = await ramp.run()
        last = ramp.last.gauges
        return UserAdmission(
            context=context, prompt=first.tokens or context - answer, admitted=ramp.admitted, stopped_by=stopped_by,
            running=_whole(last.running), waiting=_whole(last.waiting), preemptions=ramp.preemptions,
            kv_used=last.kv_used, kv_tokens=_whole(last.kv_capacity),
        )  # fmt: skip
    finally:
        await ramp.end()


async def _first_prompt(cell_context: CellContext, key: CellKey, room: int, rep: int) -> Prompt:
    length = room - SLACK_TOKENS
    if length < prompts.LEAST_PROMPT:
        raise UpstreamError(f"the engine serves requests that leave {room} tokens for a prompt")
    wanted = key.replace(context=length, kind=Kind.SPEED)
    return await prompts.build_prompt(
        cell_context.seed, wanted, PromptIndex(rep), cell_context.counter, cell_context.salt, cell_context.corpus
    )


@dataclass(slots=True)
class _Ramp:
    """Users of one ramp, each with a request that is held open."""

    context: CellContext
    output: int
    before: Reading
    first: Prompt
    admitted: int = 0
    held: list[HeldRequest] = field(default_factory=list)
    last: Reading = field(init=False)
    _queued: int = 0
    _silent: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.last = self.before

    @property
    def preemptions(self) -> int | None:
        """Preemptions since the ramp began; None: the engine does not count them."""
        grown = self.last.counters.since(self.before.counters).preemptions
        return None if grown is None else int(grown)

    async def run(self) -> str:
        """Let users join until the engine queues or preempts one. Raises UpstreamError, TimeoutError."""
        while len(self.held) < MOST_USERS:
            self._join()
            async with asyncio.timeout(JOIN_S):
                stopped_by = await self._settled()
            if stopped_by is not None:
                return stopped_by
            self.admitted = len(self.held)
        return "most"

    def _join(self) -> None:
        prompt = prompts.joining_prompt(self.first, len(self.held))
        measured = self.context.measured
        salt = f"{self.context.salt}-{len(self.held)}"
        body = measured.body(prompt.content, self.output, salt=salt)
        self.held.append(HeldRequest(measured.client, body, self._changed))

    async def _settled(self) -> str | None:
        """Wait until all users decode, and return None; or until the engine queues or preempts, and return that."""
        self._queued = 0
        while True:
            self._changed.clear()
            begun = all(one.begun for one in self.held)
            if (stopped_by := await self._looked()) is not None:
                return stopped_by
            if begun and not self.last.gauges.waiting and self._silent == 0:
                return None
            await _event_or(self._changed, LOOK_S)

    async def _looked(self) -> str | None:
        """Read the engine's figures; return what it did with the last user, or None."""
        if (error := next((one.error for one in self.held if one.error), None)) is not None:
            raise UpstreamError(error)
        reading = await self.context.measured.counters()
        self._silent = 0 if reading else self._silent + 1
        if reading is None:
            if self._silent >= SILENT_LOOKS:
                raise UpstreamError("the engine no longer tells its figures")
            return None
        stepped = reading.counters.generated is None or reading.counters.generated != self.last.counters.generated
        self.last = reading
        if self.preemptions:
            return "preempted"
        self._queued = self._queued + stepped if reading.gauges.waiting else 0
        return "queued" if self._queued >= QUEUED_LOOKS else None

    async def end(self) -> None:
        """Drop all requests and wait until the engine runs none."""
        await asyncio.gather(*(one.drop() for one in self.held))
        until = time.monotonic() + IDLE_S
        while time.monotonic() < until:
            reading = await self.context.measured.counters()
            if reading is None or not (reading.gauges.running or reading.gauges.waiting):
                return
            await asyncio.sleep(LOOK_S)


async def _event_or(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def _whole(figure: float | None) -> int | None:
    return None if figure is None else int(figure)
