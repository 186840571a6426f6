"""Simulated engine: a scheduler in steps like vLLM's, with time instead of arithmetic.

A step admits waiting requests, computes at most PREFILL_BUDGET prompt tokens and gives every decoding request its next
tokens; SimulatedTiming decides how long it lasts. Preemption is vLLM's: when the cache is full, the request admitted
last returns to the queue. Everything but `stream` runs in one task; time comes from an injected clock.
"""

import asyncio
import json
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from sparkdash.sim.faults import HEALTHY, Behaviour
from sparkdash.sim.metrics import SimulatedCounters
from sparkdash.sim.prose import GeneratedToken, seeded_random
from sparkdash.sim.speed import HeldBlocks, PrefixCache, SimulatedTiming, SimulationClock


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """Addition of one step to one answer."""

    text: str
    tokens: int
    finish: str | None = None
    stop_reason: str | None = None


@dataclass(eq=False, slots=True)
class SimulatedRequest:
    """Request inside the simulated engine."""

    tokens: list[bytes]
    """Prompt tokens, then generated ones."""
    words: Iterator[GeneratedToken]
    rng: random.Random
    arrived: float
    limit: int
    prompt: int = 0
    cached: int = 0
    computed: int = 0
    produced: int = 0
    prefill_s: float | None = None
    """Fixed prefill time of the whole prompt; None: computed by SimulatedTiming."""
    holding: HeldBlocks = field(default_factory=HeldBlocks)
    out: asyncio.Queue[AnswerPiece] = field(default_factory=asyncio.Queue)
    admitted: float | None = None
    first: float | None = None
    last: float = 0.0

    @property
    def prefilled(self) -> bool:
        return self.computed >= len(self.tokens)


@dataclass(slots=True)
class GpuWork:
    """Seconds spent in steps, the current step included up to now."""

    past_s: float = 0.0
    _began: float = 0.0
    _step_s: float = 0.0

    def begin(self, now: float, step_s: float) -> None:
        self._began, self._step_s = now, step_s

    def end(self) -> None:
        self.past_s += self._step_s
        self._step_s = 0.0

    def spent(self, now: float) -> float:
        return self.past_s + min(self._step_s, now - self._began)


PREFILL_BUDGET = 2048
"""Prompt tokens computed per step; vLLM's default max_num_batched_tokens for serving is of this size."""
CATCH_UP_S = 0.5
"""Lateness that shorter next steps may make good."""
LONG_STEPS = 64
"""Minimum number of steps of a prompt with a fixed prefill time."""


class SimulatedEngine:
    """Simulated engine. `run` is its one task; `submit`, `stream` and `abort` are for the app, on the same loop."""

    def __init__(self, pace: SimulatedTiming, cache: PrefixCache, clock: SimulationClock, *, seats: int) -> None:
        self.cache = cache
        self.counters = SimulatedCounters(len(pace.acceptance))
        self.waiting: deque[SimulatedRequest] = deque()
        self.running: list[SimulatedRequest] = []
        self.work = GpuWork()
        self.behaviour: Behaviour = HEALTHY
        self.on_tokens: Callable[[int], None] = lambda _: None
        self._pace = pace
        self._clock = clock
        self._seats = seats
        self._wake = asyncio.Event()

    def submit(
        self, tokens: list[bytes], words: Iterator[GeneratedToken], *, limit: int, seed: str
    ) -> SimulatedRequest:
        """Queue a request; its pieces come through `stream`."""
        run = SimulatedRequest(tokens, words, seeded_random(seed), self._clock.now(), limit, prompt=len(tokens))
        run.prefill_s = self.behaviour.prefill_s or None
        self.waiting.append(run)
        self._wake.set()
        return run

    async def stream(self, run: SimulatedRequest) -> AsyncIterator[AnswerPiece]:
        """Yield the pieces of an answer up to the one with `finish`. A reader that stops early must `abort`."""
        while True:
            piece = await run.out.get()
            yield piece
            if piece.finish:
                return

    def abort(self, run: SimulatedRequest) -> None:
        """Drop a request wherever it is; a no-op once it has ended."""
        if run in self.waiting:
            self.waiting.remove(run)
        elif run in self.running:
            self.running.remove(run)
        else:
            return
        self.cache.release(run.holding)
        self._wake.set()
        self.counters.finished["abort"] += 1

    async def run(self) -> None:
        due = self._clock.now()
        while True:
            if not self.running and not self.waiting:
                self._wake.clear()
                await self._wake.wait()
                due = self._clock.now()
                continue
            chunks, decoding = self._plan()
            step_s = self._duration(chunks, decoding)
            due = max(due, self._clock.now() - CATCH_UP_S) + step_s
            self.work.begin(self._clock.now(), step_s)
            await self._clock.sleep_until(due)
            self.work.end()
            self._apply(chunks, decoding)

    def _plan(self) -> tuple[dict[SimulatedRequest, int], list[SimulatedRequest]]:
        """Return prompt tokens to compute by request, and the decoding requests."""
        self._admit()
        decoding = [run for run in self.running if run.prefilled]
        chunks = self._prefill_chunks([run for run in self.running if not run.prefilled])
        return {run: size for run, size in chunks.items() if run in self.running}, decoding

    def _prefill_chunks(self, prefilling: list[SimulatedRequest]) -> dict[SimulatedRequest, int]:
        """Divide the step's budget of prompt tokens; a request may be preempted by a later one of them."""
        budget, chunks = PREFILL_BUDGET, {}
        for run in prefilling:
            size = min(budget, len(run.tokens) - run.computed)
            if run.prefill_s is not None:
                size = min(size, -(-run.prompt // LONG_STEPS))
            if size and run in self.running and self._room(run, run.computed + size):
                chunks[run] = size
                budget -= size
        return chunks

    def _admit(self) -> None:
        while len(self.running) < self._seats and self.waiting:
            run = self.waiting[0]
            keys = self.cache.matched(run.tokens)
            hit = len(keys) * self.cache.block
            run.holding = self.cache.take(keys)
            chunk = min(PREFILL_BUDGET, len(run.tokens) - hit)
            if self.running and not self.cache.fits(-(-chunk // self.cache.block)):
                self.cache.release(run.holding)
                return
            self.waiting.remove(run)
            self.running.append(run)
            run.computed = hit
            if run.admitted is None:
                run.admitted, run.cached = self._clock.now(), hit
                self.counters.admitted(run.prompt, hit)

    def _duration(self, chunks: dict[SimulatedRequest, int], decoding: list[SimulatedRequest]) -> float:
        prefill = sum(
            self._pace.prefill_s(size, run.computed)
            if run.prefill_s is None
            else size / run.prompt * run.prefill_s / self._pace.scale
            for run, size in chunks.items()
        )
        return prefill + self._pace.step_s([len(run.tokens) for run in decoding])

    def _apply(self, chunks: dict[SimulatedRequest, int], decoding: list[SimulatedRequest]) -> None:
        before = self.counters.generated, self.counters.prompt_computed
        for run, size in chunks.items():
            if run in self.running:
                run.computed += size
                self.cache.publish(run.holding, run.tokens[: run.computed])
                if run.prefilled:
                    self._advance(run, 1)
        for run in decoding:
            if run in self.running:
                self._advance(run, 1 + self._draw(run))
        if self.counters.generated > before[0]:
            computed = self.counters.prompt_computed - before[1]
            self.counters.stepped(computed + self.counters.generated - before[0])

    def _draw(self, run: SimulatedRequest) -> int:
        """Draw the accepted drafts of this step. Counted like vLLM, before the answer is cut."""
        chances = self._pace.acceptance
        accepted = 0
        while accepted < len(chances) and run.rng.random() < chances[accepted]:
            accepted += 1
        if chances:
            self.counters.drafted(accepted)
        return accepted

    def _advance(self, run: SimulatedRequest, count: int) -> None:
        count = min(count, run.limit - run.produced)
        if not self._room(run, len(run.tokens) + count):
            return
        words: list[GeneratedToken] = []
        for word in run.words:
            words.append(word)
            if word.finish or len(words) == count:
                break
        run.tokens += [word.token for word in words]
        run.computed = len(run.tokens)
        run.produced += len(words)
        self.cache.publish(run.holding, run.tokens)
        self._count(run, len(words))
        last = words[-1] if words else GeneratedToken(b"", "", "stop")
        run.out.put_nowait(AnswerPiece("".join(w.text for w in words), len(words), last.finish, last.stop_reason))
        if last.finish:
            self._finish(run, last.finish)
        self.on_tokens(run.produced)

    def _count(self, run: SimulatedRequest, tokens: int) -> None:
        now = self._clock.now()
        self.counters.generated += tokens
        if run.first is None:
            run.first = now
            self.counters.first_token(run.prompt, run.cached, now - run.arrived)
        else:
            self.counters.itl.observe(now - run.last)
        run.last = now

    def _finish(self, run: SimulatedRequest, reason: str) -> None:
        self.running.remove(run)
        self.cache.release(run.holding)
        prefill_s = (run.first or run.last) - (run.admitted or run.arrived)
        self.counters.done(reason, computed=run.prompt - run.cached, prefill_s=prefill_s)

    def _room(self, run: SimulatedRequest, tokens: int) -> bool:
        """Reserve cache blocks for `tokens` of `run`, preempting the requests admitted last, finally itself."""
        while not self.cache.grow(run.holding, tokens):
            victim = self.running.pop()
            self.cache.release(victim.holding)
            victim.computed = 0
            self.waiting.appendleft(victim)
            self.counters.preemptions += 1
            if victim is run:
                return False
        return True


class RefusedError(Exception):
    """Client error in a request."""

    def __init__(
        self, message: str, *, kind: str = "BadRequestError", status: int = 400, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self._error = {"message": message, "type": kind, "param": param, "code": status}

    def body(self) -> bytes:
        return json.dumps({"error": self._error}, separators=(",", ":")).encode()


def unknown_model(name: str, served: tuple[str, ...]) -> RefusedError:
    return RefusedError(
        f"The model `{name}` does not exist. Valid aliases: {', '.join(served)}.",
        kind="NotFoundError",
        status=404,
        param="model",
    )


def bad_json(position: int) -> RefusedError:
    return RefusedError(
        f"1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{position}', 'msg': 'JSON decode error'}}",
        kind="Bad Request",
        param=f"body.{position}",
    )


def too_long(context: int, prompt: int, limit: int | None) -> RefusedError:
    """400 for a prompt and answer that exceed the context. Clients recognise the sentence's beginning."""
    asked = f"{prompt + (limit or 1)} tokens ({prompt} in the messages, {limit or 1} in the completion)"
    return RefusedError(
        f"This model's maximum context length is {context} tokens. However, you requested {asked}. "
        "Please reduce the length of the messages or completion.",
        param="messages",
    )


def too_many(limit: int, context: int) -> RefusedError:
    return RefusedError(
        f"max_tokens={limit} cannot be greater than max_model_len={context}. Please request fewer output tokens. "
        f"(parameter=max_tokens, value={limit})",
        param="max_tokens",
    )
