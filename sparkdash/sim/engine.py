"""The simulated engine: a scheduler that works in steps, as vLLM's does, with time instead of arithmetic.

Owns: the queue, the batch, the prefix cache, speculative draws, the counters. Must not know HTTP or processes.
One step admits what waits, computes at most PREFILL_BUDGET prompt tokens and gives every decoding request its next
tokens; it lasts as long as `pace` says. Preemption as in vLLM: when the cache is full, the last one admitted goes
back to the queue. Everything but `stream` runs in one task; time comes from an injected clock.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

from sparkdash.sim.counters import Counters
from sparkdash.sim.pace import Clock, Pace
from sparkdash.sim.prefix_cache import Holding, PrefixCache
from sparkdash.sim.prose import Word, seeded

PREFILL_BUDGET = 2048
"""Prompt tokens computed per step; vLLM's default max_num_batched_tokens for serving is of this size."""
CATCH_UP_S = 0.5
"""How far a late step may be made good by shortening the next ones."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one step added to one answer."""

    text: str
    tokens: int
    finish: str | None = None
    """stop or length; None while it goes on."""
    stop_reason: str | None = None


@dataclass(eq=False, slots=True)
class Run:
    """One request inside the engine."""

    tokens: list[bytes]
    """The prompt, then what was generated."""
    words: Iterator[Word]
    rng: random.Random
    arrived: float
    limit: int
    prompt: int = 0
    """Length of the prompt."""
    cached: int = 0
    """Prompt tokens found in the prefix cache."""
    computed: int = 0
    produced: int = 0
    holding: Holding = field(default_factory=Holding)
    out: asyncio.Queue[Piece] = field(default_factory=asyncio.Queue)
    admitted: float | None = None
    first: float | None = None
    last: float = 0.0

    @property
    def prefilled(self) -> bool:
        """Is all but the next token computed?"""
        return self.computed >= len(self.tokens)


class Engine:
    """See the module. `run` is its one task; `submit`, `stream` and `abort` are for the app, on the same loop."""

    def __init__(
        self, pace: Pace, cache: PrefixCache, clock: Clock, *, seats: int, dies_after: int | None = None
    ) -> None:
        self.cache = cache
        self.counters = Counters(len(pace.acceptance))
        self.waiting: deque[Run] = deque()
        self.running: list[Run] = []
        self.busy_s = 0.0
        """Time spent in steps so far."""
        self.on_death: Callable[[], None] = lambda: None
        self._pace = pace
        self._clock = clock
        self._seats = seats
        self._dies_after = dies_after
        self._wake = asyncio.Event()

    def submit(self, tokens: list[bytes], words: Iterator[Word], *, limit: int, seed: str) -> Run:
        """Queue a request; its pieces come through `stream`."""
        run = Run(tokens, words, seeded(seed), self._clock.now(), limit, prompt=len(tokens))
        self.waiting.append(run)
        self._wake.set()
        return run

    async def stream(self, run: Run) -> AsyncIterator[Piece]:
        """The pieces of an answer up to the one with `finish`. Whoever stops reading must `abort`."""
        while True:
            piece = await run.out.get()
            yield piece
            if piece.finish:
                return

    def abort(self, run: Run) -> None:
        """Drop a request wherever it is; nothing happens to one that is over."""
        if run in self.waiting:
            self.waiting.remove(run)
        elif run in self.running:
            self.running.remove(run)
        else:
            return
        self.cache.release(run.holding)
        self.counters.finished["abort"] += 1

    async def run(self) -> None:
        """Step for ever."""
        due = self._clock.now()
        while True:
            if not self.waiting and not self.running:
                self._wake.clear()
                await self._wake.wait()
                due = self._clock.now()
            chunks, decoding = self._plan()
            seconds = self._duration(chunks, decoding)
            due = max(due, self._clock.now() - CATCH_UP_S) + seconds
            await self._clock.sleep_until(due)
            self.busy_s += seconds
            self._apply(chunks, decoding)

    def _plan(self) -> tuple[dict[Run, int], list[Run]]:
        """Who computes how many prompt tokens, and who decodes."""
        self._admit()
        decoding = [run for run in self.running if run.prefilled]
        budget, chunks = PREFILL_BUDGET, {}
        for run in [run for run in self.running if not run.prefilled]:
            size = min(budget, len(run.tokens) - run.computed)
            if size and run in self.running and self._room(run, run.computed + size):
                chunks[run] = size
                budget -= size
        return {run: size for run, size in chunks.items() if run in self.running}, decoding

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self._seats:
            run = self.waiting[0]
            keys = self.cache.matched(run.tokens)
            hit = len(keys) * self.cache.block
            run.holding = self.cache.take(keys)
            chunk = min(PREFILL_BUDGET, len(run.tokens) - hit)
            if self.running and not self.cache.fits(-(-chunk // self.cache.block)):
                self.cache.release(run.holding)
                return
            self.waiting.popleft()
            self.running.append(run)
            run.computed = hit
            if run.admitted is None:
                run.admitted, run.cached = self._clock.now(), hit
                self.counters.admitted(run.prompt, hit)

    def _duration(self, chunks: dict[Run, int], decoding: list[Run]) -> float:
        prefill = sum(self._pace.prefill_s(size, run.computed) for run, size in chunks.items())
        return prefill + self._pace.step_s([len(run.tokens) for run in decoding])

    def _apply(self, chunks: dict[Run, int], decoding: list[Run]) -> None:
        before, computed = self.counters.generated, 0
        for run, size in chunks.items():
            if run in self.running:
                run.computed += size
                computed += size
                self.cache.publish(run.holding, run.tokens[: run.computed])
                if run.prefilled:
                    self._advance(run, 1)
        for run in decoding:
            if run in self.running:
                self._advance(run, 1 + self._draw(run))
        self.counters.stepped(computed + self.counters.generated - before)

    def _draw(self, run: Run) -> int:
        """Drafts accepted in this step; counted as vLLM counts them, before the answer is cut."""
        chances = self._pace.acceptance
        accepted = 0
        while accepted < len(chances) and run.rng.random() < chances[accepted]:
            accepted += 1
        if chances:
            self.counters.drafted(accepted)
        return accepted

    def _advance(self, run: Run, count: int) -> None:
        """Append up to `count` tokens to the answer and hand them over."""
        count = min(count, run.limit - run.produced)
        if not self._room(run, len(run.tokens) + count):
            return
        words: list[Word] = []
        for word in run.words:
            words.append(word)
            if word.finish or len(words) == count:
                break
        run.tokens += [word.token for word in words]
        run.computed = len(run.tokens)
        run.produced += len(words)
        self.cache.publish(run.holding, run.tokens)
        self._count(run, len(words))
        last = words[-1] if words else Word(b"", "", "stop")
        run.out.put_nowait(Piece("".join(w.text for w in words), len(words), last.finish, last.stop_reason))
        if last.finish:
            self._finish(run, last.finish)
        elif self._dies_after is not None and run.produced >= self._dies_after:
            self.on_death()

    def _count(self, run: Run, tokens: int) -> None:
        now = self._clock.now()
        self.counters.generated += tokens
        if run.first is None:
            run.first = now
            self.counters.first_token(run.prompt, run.cached, now - run.arrived)
        else:
            self.counters.itl.observe(now - run.last)
        run.last = now

    def _finish(self, run: Run, reason: str) -> None:
        self.running.remove(run)
        self.cache.release(run.holding)
        admitted, first = run.admitted or run.arrived, run.first or run.last
        self.counters.done(
            reason, prompt=run.prompt, cached=run.cached, generated=run.produced, limit=run.limit,
            queue_s=admitted - run.arrived, prefill_s=first - admitted, decode_s=run.last - first,
        )  # fmt: skip

    def _room(self, run: Run, tokens: int) -> bool:
        """Cache blocks for `tokens` of `run`, if need be at the cost of those admitted last, itself in the end."""
        while not self.cache.grow(run.holding, tokens):
            victim = self.running.pop()
            self.cache.release(victim.holding)
            victim.computed = 0
            self.waiting.appendleft(victim)
            self.counters.preemptions += 1
            if victim is run:
                return False
        return True
