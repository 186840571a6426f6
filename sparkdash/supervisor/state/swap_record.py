"""A swap under way as people see it: its phases, its progress and the time left, published at each change.

A step is a phase, or within the load a stage of the engine's own log. The drain is no step: how long it takes depends
on the requests that run. Neither is a copy to another node, which happens once. The share is a place on the course of
earlier swaps. It moves with finished steps, with the log's own share of the present step, and with time only within the
present step. A load that takes far longer than ever is on another course: its share and its time are unknown. Without
an earlier swap there is no time, and the share is that of the weights in the log, or of the memory taken.
"""

from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.event import Fact, SwapChanged
from sparkdash.domain.swap import Start, Step, Swap, SwapOutcome, SwapPhase
from sparkdash.supervisor.state.clock import Clock

Steps = tuple[Step, ...]

START = "start"
"""Step before the log's first word: the interpreter and its imports."""
NEARLY = 0.99
"""Largest share shown before an engine is ready."""
BY_TIME = 0.9
"""Largest share of a step that passing time can show; the rest waits for the log or the next step."""
AHEAD = 0.5
"""Most by which time may be ahead of the log within a stage, while the stage's steps are not known."""
BY_MEMORY = 0.8
"""Largest share of a first load that weights or memory can show: compiling and graphs take no memory."""
WEIGHTS = "weights"
AFTER_WEIGHTS = frozenset({"compile", "kv", "kernels", "graphs", "warmup", "http", "ready"})
"""Stages of the log that begin once the weights are there."""
LONGER = 1.5
LONGER_S = 10.0
"""A stage that takes this many times, and seconds, longer than ever before has no estimate any more."""


class Estimate(NamedTuple):
    """Estimate of a swap under way: seconds, and a share of 0..1; None is not known."""

    fraction: float | None = None
    """Share of the way, by earlier swaps or by memory; never falls, never 1. None while far longer than ever."""
    eta_s: float | None = None
    """Median of the seconds left, without the rest of a drain; 0, as the next two: longer than ever."""
    low_s: float | None = None
    """Least and most seconds left by those earlier swaps; None while there is but one."""
    high_s: float | None = None


class SwapEta:
    """Steps and estimate of one swap. `past` are earlier ones, oldest first; `needs` are the target's bytes."""

    def __init__(self, past: Sequence[Steps] = (), *, similar: bool = False, needs: int | None = None) -> None:
        self.similar = similar and bool(past)
        """Whether they were of another launch of the same model."""
        self.learn(past)
        self._needs = needs
        self._taken = 0
        self._spent: dict[str, float] = {}
        """Seconds of each step that is over, in order."""
        self._phase: SwapPhase | None = None
        self._step: str | None = None
        self._since = 0.0
        self._first: float | None = None
        self._share: float | None = None
        self._stride: float | None = None
        """Largest step between two shares that the log showed in this stage."""
        self._reached = 0.0
        self._told: float | None = None
        """Share of the weights that the log has shown."""
        self._told_step = 0.0

    def learn(self, past: Sequence[Steps]) -> None:
        self.learned_from = len(past)
        self._past = [_EarlierSwap(steps) for steps in past]

    def enter(self, phase: SwapPhase, now: float) -> None:
        self._phase = phase
        step = START if phase is SwapPhase.LOAD else phase.value
        self._go_on(None if phase in (SwapPhase.COPY, SwapPhase.DRAIN) else step, now, None)

    def heard(self, progress: LoadProgress, now: float) -> None:
        """Note the log's progress. Lines of an engine that is being warmed up do not count."""
        if self._phase is not SwapPhase.LOAD:
            return
        complete = progress.fraction is not None and progress.fraction >= 1.0
        self._heard_weights(progress)
        name = f"{progress.stage} done" if complete else progress.stage
        if name != self._plain():
            self._go_on(name, now, None if complete else progress.fraction)
        elif not complete and progress.fraction is not None:
            self._heard_share(progress.fraction)

    def _heard_weights(self, progress: LoadProgress) -> None:
        if progress.stage in AFTER_WEIGHTS:
            self._told = 1.0
        elif progress.stage == WEIGHTS and progress.fraction is not None:
            before, self._told = self._told or 0.0, max(self._told or 0.0, progress.fraction)
            self._told_step = max(self._told_step, self._told - before)

    def _heard_share(self, share: float) -> None:
        self._first = share if self._first is None else self._first
        if self._share is not None and share > self._share:
            self._stride = max(self._stride or 0.0, share - self._share)
        self._share = share

    def took(self, taken: int) -> None:
        self._taken = max(self._taken, taken)

    def steps(self, now: float) -> Steps:
        return tuple(Step(name=name, s=seconds) for name, seconds in self._with_present(now).items())

    def estimate(self, now: float) -> Estimate:
        """Estimate as of now. The fraction never falls."""
        if not self._past:
            return Estimate(self._ratchet(self._first_course()))
        fraction = self._ratchet(median(self._place(past, now) for past in self._past))
        left = sorted(self._left(past, now) for past in self._past)
        several = len(left) > 1
        if self._is_overdue(now):
            return Estimate(None, 0.0, *((0.0, 0.0) if several else (None, None)))
        return Estimate(fraction, median(left), left[0] if several else None, left[-1] if several else None)

    def _go_on(self, name: str | None, now: float, share: float | None) -> None:
        self._spent = self._with_present(now)
        self._step = name if name is None or name not in self._spent else self._again(name)
        self._since = now
        self._first = self._share = share
        self._stride = share or None  # it came from nothing

    def _again(self, name: str) -> str:
        """A step that was over comes back: a drafter's weights, a second pass of captures."""
        count = 2
        while f"{name} {count}" in self._spent:
            count += 1
        return f"{name} {count}"

    def _plain(self) -> str | None:
        name, _, count = (self._step or "").rpartition(" ")
        return name if name and count.isdecimal() else self._step

    def _with_present(self, now: float) -> dict[str, float]:
        return self._spent if self._step is None else {**self._spent, self._step: now - self._since}

    def _last_known(self, past: "_EarlierSwap") -> str | None:
        """Return the latest step that the earlier swap had too: the present one, else the last that is over."""
        if self._step is not None and self._step in past.place:
            return self._step
        known = [name for name in self._spent if name in past.place]
        return max(known, key=past.place.__getitem__) if known else None

    def _place(self, past: "_EarlierSwap", now: float) -> float:
        """Share of the earlier swap's time at which it was where this one is."""
        step = self._last_known(past)
        if step is None or not past.total:
            return 0.0
        rest = (1.0 - self._done_here(past.took(step), now)) * past.took(step) if step == self._step else 0.0
        return 1.0 - (past.after(step) + rest) / past.total

    def _done_here(self, took: float, now: float) -> float:
        """Share of the present step: by the time that it took earlier, within what the log shows."""
        by_time = min(BY_TIME, (now - self._since) / took) if took else BY_TIME
        if self._share is None or self._first is None or self._first >= 1.0:
            return by_time
        told, whole = self._share - self._first, 1.0 - self._first
        return max(told, min(by_time * whole, told + (self._stride or AHEAD))) / whole

    def _left(self, past: "_EarlierSwap", now: float) -> float:
        """Seconds left if the rest takes as long as in the earlier swap."""
        step = self._last_known(past)
        if step is None:
            return past.total
        return past.after(step) + (self._left_here(past.took(step), now) if step == self._step else 0.0)

    def _left_here(self, took: float, now: float) -> float:
        """Seconds left of the present step: as in the earlier swap, and increasingly at the log's pace."""
        gone = now - self._since
        learned = max(0.0, took - gone)
        if self._share is None or self._first is None or not self._is_paced():
            return learned
        paced = gone * (1.0 - self._share) / (self._share - self._first)
        return (1.0 - self._share) * learned + self._share * paced

    def _is_paced(self) -> bool:
        return self._share is not None and self._first is not None and self._first < self._share < 1.0

    def _is_overdue(self, now: float) -> bool:
        """Whether the step takes far longer than in any earlier swap, or than all that was left, and shows no pace."""
        if self._step is None or self._is_paced():
            return False
        known = [past.took(self._step) for past in self._past if self._step in past.place]
        return now - self._since > LONGER * max(known or [self._left(past, now) for past in self._past]) + LONGER_S

    def _first_course(self) -> float | None:
        """Share of a first load: by the memory that it needs, within what its log shows of the weights."""
        by_memory = min(BY_MEMORY, self._taken / self._needs) if self._needs and self._taken else None
        if self._told is None:
            return by_memory
        return min(max(by_memory or 0.0, BY_MEMORY * self._told), BY_MEMORY * min(1.0, self._told + self._told_step))

    def _ratchet(self, fraction: float | None) -> float | None:
        if fraction is None:
            return self._reached or None
        self._reached = max(self._reached, min(fraction, NEARLY))
        return self._reached


class _EarlierSwap:
    """An earlier swap, so that its rest is looked up and not summed anew."""

    def __init__(self, steps: Steps) -> None:
        self.place = {step.name: at for at, step in enumerate(steps)}
        self.seconds = [step.s for step in steps]
        self.total = sum(self.seconds)

    def took(self, name: str) -> float:
        return self.seconds[self.place[name]]

    def after(self, name: str) -> float:
        return sum(self.seconds[self.place[name] + 1 :])


MOVED = 0.01
MOVED_S = 2.0
"""An estimate is published when its fraction rose by MOVED, or its time is off by both."""
HEARD_S = 2.0
"""Age of the last line at which a newer one is published by itself."""
STILL_S = 30.0
"""Importing, mapping and compiling are mostly silent for less."""
LIMIT_MOVED_S = 1.0
"""A limit on standing still is published again when it has moved by more: it was extended, or its setting edited."""


class SwapRecord:
    """Published state of one swap, from its first phase to `end`. `course`: the course of earlier swaps like it."""

    def __init__(self, publish: Callable[[Fact], object], clock: Clock, swap: Swap, course: SwapEta) -> None:
        self._publish = publish
        self._clock = clock
        self._course = course
        self._heard_at: float | None = None
        self.extended_at: float | None = None
        self._phase_began = clock.monotonic()
        course.enter(swap.phase, self._phase_began)
        self.swap = swap
        self._tell(swap.replace(learned_from=course.learned_from, similar=course.similar))

    def phase(self, phase: SwapPhase) -> None:
        if self.swap.phase is not phase:
            fresh = self.swap.replace(waits_for=None, until=None, progress=None, still_since=None, gives_up_at=None)
            fresh = fresh.replace(phase=phase, phase_at=self._clock.now(), stage_s=self._times())
            self._phase_began = self._clock.monotonic()
            self._course.enter(phase, self._phase_began)
            self._tell(fresh)

    def waits(self, what: str | None, until: float | None = None) -> None:
        """Set what the present phase waits for, and until when at most; Unix seconds."""
        if (what, until) != (self.swap.waits_for, self.swap.until):
            self._tell(self.swap.replace(waits_for=what, until=until))

    def progress(self, progress: LoadProgress) -> None:
        self._course.heard(progress, self._clock.monotonic())
        self._tell(self.swap.replace(progress=progress))

    def took(self, taken: int) -> None:
        """Set the bytes that the load holds now. Published when they, or the passed time, move the estimate."""
        self._course.took(taken)
        if self._moved():
            self._tell(self.swap)

    def heard(self) -> None:
        """Note a line of the engine's log; published with the next change, or HEARD_S later."""
        self._heard_at = self._clock.now()

    def begin_start(self, start: Start, alike: Sequence[Steps], unlike: Sequence[Steps]) -> None:
        """Set what is known of a start before its stages, and earlier swaps whose caches were like its own, or not."""
        if alike:
            self._course.learn(alike)
        other = not alike and bool(unlike)
        self.swap = self.swap.replace(start=start, learned_from=self._course.learned_from, other_caches=other)

    def taken_apart(self, start: Start | None) -> None:
        """Set how long each stage of the start took; published with the next change. Until the end: those so far."""
        known = self.swap.start
        if start and known:
            start = start.replace(
                image_id=known.image_id,
                first_on_image=known.first_on_image,
                caches_empty=known.caches_empty,
                io_uring=known.io_uring,
            )
        self.swap = self.swap.replace(start=start)

    def extend(self) -> None:
        """Count a load that stands still as moving from now on, as far as its limit goes."""
        self.extended_at = self._clock.monotonic()

    def still(self, seconds: float, left_s: float) -> None:
        """Set how long the load has shown no progress, and still may; published when either changes much."""
        is_still = seconds >= STILL_S
        gives_up_at = self._clock.now() + left_s
        moved = abs(gives_up_at - (self.swap.gives_up_at or gives_up_at)) > LIMIT_MOVED_S
        if is_still != (self.swap.still_since is not None) or (is_still and moved):
            since = self._clock.now() - seconds if is_still else None
            self._tell(self.swap.replace(still_since=since, gives_up_at=gives_up_at if is_still else None))
        elif (self._heard_at or 0.0) - (self.swap.heard_at or 0.0) >= HEARD_S:
            self._tell(self.swap)

    def waiting(self, count: int) -> None:
        if self.swap.waiting != count:
            self._tell(self.swap.replace(waiting=count))

    def end(
        self, outcome: SwapOutcome, failure: Failure | None, record: Callable[[Swap], object] | None = None
    ) -> Swap:
        swap, done = self.swap, outcome is SwapOutcome.DONE
        ended = swap.replace(waits_for=None, until=None, still_since=None, gives_up_at=None, stage_s=self._times())
        ended = ended.replace(eta_s=None, eta_low_s=None, eta_high_s=None, eta_at=None)
        ended = ended.replace(
            fraction=1.0 if done else swap.fraction,
            steps=self._course.steps(self._clock.monotonic()),
            ended_at=self._clock.now(),
            outcome=outcome,
            failure=failure,
            start=swap.start if done else None,
        )
        if record is not None:
            record(ended)
        self._publish(SwapChanged(swap=ended))
        return ended

    def _times(self) -> dict[SwapPhase, float]:
        return {**self.swap.stage_s, self.swap.phase: self._clock.monotonic() - self._phase_began}

    def _tell(self, swap: Swap) -> None:
        estimate = self._course.estimate(self._clock.monotonic())
        self.swap = swap.replace(
            heard_at=self._heard_at,
            fraction=estimate.fraction,
            eta_s=estimate.eta_s,
            eta_low_s=estimate.low_s,
            eta_high_s=estimate.high_s,
            eta_at=None if estimate.eta_s is None else self._clock.now(),
        )
        self._publish(SwapChanged(swap=self.swap))

    def _moved(self) -> bool:
        """Whether the estimate differs from what a reader derives from the last one published."""
        told, now = self.swap, self._course.estimate(self._clock.monotonic())
        if (now.fraction is None) is not (told.fraction is None):
            return True
        if (now.fraction or 0.0) - (told.fraction or 0.0) >= MOVED:
            return True
        if now.eta_s is None or told.eta_s is None or told.eta_at is None:
            return False
        counted = max(0.0, told.eta_s - (self._clock.now() - told.eta_at))
        return abs(now.eta_s - counted) >= max(MOVED_S, MOVED * counted)
