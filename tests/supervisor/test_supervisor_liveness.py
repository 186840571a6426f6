"""The judge of liveness: stuck engines are named in time, and healthy ones never."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from thorough import tries

from sparkdash.domain.engine import LivenessState
from sparkdash.supervisor.decide.judge import (
    EngineSignals,
    HealthAnswer,
    LivenessJudge,
    LivenessVerdict,
    Recovery,
    RecoveryOutlook,
    Thresholds,
)

LEFT = EngineSignals(
    at=0.0, held=0, health=HealthAnswer.WELL, answers=True, running=0.0, waiting=0.0, progress=(5.0,), processes=3
)
STILL = replace(LEFT, running=2.0)


def outlooks(look: EngineSignals, *, works_from: float | None = None) -> list[tuple[float, RecoveryOutlook]]:
    """Every look's outlook, 5 s apart, until a try succeeds or nothing more is expected."""
    recovery, found, at = Recovery(0.0, Thresholds()), [], 0.0
    while True:
        outlook = recovery.see(replace(look, at=at))
        found.append((at, outlook))
        if outlook is RecoveryOutlook.HOPELESS:
            return found
        if outlook is RecoveryOutlook.TRY:
            if works_from is not None and at >= works_from:
                return found
            recovery.tried(at)
        at += 5.0


@pytest.mark.parametrize("frees_s", [0.0, 20.0, 94.0, 105.0, 118.0])
def test_an_engine_that_is_free_again_within_two_minutes_is_found_to_work(frees_s: float) -> None:
    at, outlook = outlooks(LEFT, works_from=frees_s)[-1]
    assert outlook is RecoveryOutlook.TRY
    assert frees_s <= at <= Thresholds().recovery_s


@pytest.mark.parametrize(("look", "tried_at", "given_up_at"), [
    (LEFT, [0.0, 30.0, 60.0, 90.0, 120.0], 125.0), (STILL, [], 120.0),
    (replace(STILL, answers=False, held=1), [120.0], 125.0), (replace(STILL, stopped=3), [], 0.0),
    (replace(STILL, stopped=1), [], 20.0), (replace(STILL, health=HealthAnswer.SILENT), [], 20.0),
], ids=["free", "it holds its requests", "no fresh figures", "all stopped", "one stopped", "the server is silent"])  # fmt: skip
def test_one_that_never_works_is_tried_and_given_up(
    look: EngineSignals, tried_at: list[float], given_up_at: float
) -> None:
    found = outlooks(look)
    assert [at for at, outlook in found if outlook is RecoveryOutlook.TRY] == tried_at
    assert found[-1] == (given_up_at, RecoveryOutlook.HOPELESS)


HISTORIES = int(os.environ.get("SPARKDASH_LIVENESS_HISTORIES", tries(1000)))
LIMITS = Thresholds()
EVERY_S = 5.0
OLD = -1e6
"""A start so long ago that no threshold is doubled."""


def still(look: EngineSignals, seconds: float) -> list[EngineSignals]:
    return [replace(look, at=look.at + EVERY_S * number) for number in range(int(seconds / EVERY_S) + 1)]


def first_stuck(judge: LivenessJudge, history: list[EngineSignals]) -> LivenessVerdict | None:
    verdicts = (judge.see(look) for look in history)
    return next((v for v in verdicts if v is not None and v.state is LivenessState.STUCK), None)


def named(judge: LivenessJudge, history: list[EngineSignals]) -> LivenessVerdict:
    found = first_stuck(judge, history)
    assert found is not None
    return found


HUNG = EngineSignals(
    at=0.0, held=2, answers=True, health=HealthAnswer.WELL, running=2.0, waiting=0.0, kv_used=0.4, progress=(900.0, 30.0),
    cpu_s=500.0, processes=3, stopped=0, power_w=14.0, low_w=30.0, utilization=0.96,
)  # fmt: skip


DARK = replace(HUNG, power_w=None, utilization=None)
BLIND = EngineSignals(at=0.0, held=1, power_w=80.0, low_w=30.0, utilization=0.99)
"""Neither figures nor a stream: nothing but the GPU shows work."""


ASLEEP = replace(HUNG, asleep=True)
COMPILING = replace(HUNG, compilers=("ptxas",), utilization=0.0)
FROZEN = replace(DARK, answers=False, health=HealthAnswer.SILENT, stopped=3)
STANDING: dict[str, tuple[EngineSignals, float, float, str]] = {
    "a kernel that hangs, at low power": (HUNG, 0, LIMITS.voted_s, "2 running; GPU 14 W at 96 %"),
    "the same without a figure for power": (replace(HUNG, power_w=None), 0, LIMITS.plain_s, ""),
    "an idle CPU and a cache that does not fill": (DARK, 0, LIMITS.voted_s, ""),
    "all processes stopped": (FROZEN, 0, LIMITS.stopped_s, "its processes are stopped; health route does not answer"),
    "one process stopped": (replace(HUNG, stopped=1, stopped_names=("A",)), 0, LIMITS.stopped_s,
                            "1 of its processes are stopped (A)"),
    "hangs in the driver": (replace(HUNG, in_kernel=2), 0, LIMITS.voted_s,
                            "2 of its processes in the kernel (state D)"),
    "waiting while none runs": (replace(DARK, running=0.0, waiting=3.0, kv_used=0.0), 0, LIMITS.voted_s, ""),
    "a livelock at full power": (replace(HUNG, power_w=80.0, utilization=1.0), 1, LIMITS.plain_s, ""),
    "compilers": (COMPILING, 0, LIMITS.compiling_s, ""),
    "neither figures nor a stream": (BLIND, 0, LIMITS.blind_at_work_s, ""),
}  # fmt: skip
"""Signals, busy cores, the seconds after which they are named, and words of the reason."""
WORKING: dict[str, tuple[EngineSignals, float, float, LivenessState | None]] = {
    "compilers": (COMPILING, 0, 600, LivenessState.COMPILING),
    "a compilation in the engine itself": (replace(HUNG, utilization=0.0, power_w=9.0), 1, 600, None),
    "a grammar that compiles": (replace(DARK, running=0.0, waiting=1.0, deferred=1.0), 0, 250, None),
    "an engine that sleeps": (ASLEEP, 0, 4000, LivenessState.SILENT),
    "a long step at full power": (replace(HUNG, power_w=80.0), 0, 90, LivenessState.PREFILL),
    "a long answer that nothing but the GPU shows": (BLIND, 0, 1000, LivenessState.PREFILL),
}


def spent(look: EngineSignals, cores: float, seconds: float) -> list[EngineSignals]:
    return [replace(each, cpu_s=500 + cores * each.at) if each.cpu_s else each for each in still(look, seconds)]


@pytest.mark.parametrize("case", STANDING)
def test_an_engine_that_stands_still_is_stuck_at_its_limit(case: str) -> None:
    look, cores, limit_s, words = STANDING[case]
    found = named(LivenessJudge(OLD), spent(look, cores, 2000))
    assert (found.limit_s, found.still_s) == (limit_s, limit_s)
    assert [word for word in words.split("; ") if word not in found.why] == []


@pytest.mark.parametrize("case", WORKING)
def test_an_engine_that_may_still_work_is_not_stuck(case: str) -> None:
    look, cores, seconds, state = WORKING[case]
    judge = LivenessJudge(OLD)
    states = [verdict.state for each in spent(look, cores, seconds) if (verdict := judge.see(each))]
    assert LivenessState.STUCK not in states
    assert state in (None, states[-1])


def test_requests_that_arrive_and_give_up_hide_nothing() -> None:
    judge, at, verdict = LivenessJudge(OLD), 0.0, None
    for round_ in range(60):  # each client leaves after 20 s, and the next one comes 5 s later
        for held in (1, 1, 1, 1, 0):
            verdict = judge.see(replace(HUNG, at=at, held=held, running=float(held), waiting=float(round_ % 2)))
            at += EVERY_S
            if verdict is not None and verdict.state is LivenessState.STUCK:
                assert at < 2 * LIMITS.voted_s
                return
    pytest.fail("never named")


def test_an_engine_that_wakes_has_its_whole_time_from_then_on() -> None:
    judge = LivenessJudge(OLD)
    for look in still(ASLEEP, 4000):
        judge.see(look)
    woken = [replace(look, at=4000 + look.at) for look in still(HUNG, 900)]
    found = named(judge, woken)
    assert found.still_s >= 4000 + LIMITS.voted_s - EVERY_S


def test_a_young_engine_gets_twice_the_time_unless_it_was_stopped() -> None:
    assert first_stuck(LivenessJudge(0.0), still(HUNG, 235)) is None
    assert first_stuck(LivenessJudge(0.0), still(HUNG, 245)) is not None
    stopped = first_stuck(LivenessJudge(0.0), still(replace(HUNG, stopped=3), 245))
    assert stopped is not None
    assert stopped.still_s == LIMITS.stopped_s


def test_time_in_which_the_box_slept_or_sparkdash_was_held_up_does_not_count() -> None:
    judge = LivenessJudge(OLD)
    assert judge.see(HUNG)
    slept = judge.see(replace(HUNG, at=3600.0))
    assert slept is not None
    assert slept.still_s == 0.0
    lagging = [replace(HUNG, at=3600.0 + 25 * i, lag_s=20.0) for i in range(1, 40)]
    assert first_stuck(judge, lagging) is None


def test_a_retry_that_takes_blocks_away_from_the_cache_is_no_progress() -> None:
    judge = LivenessJudge(OLD)
    judge.see(HUNG)
    verdict = judge.see(replace(HUNG, at=5.0, running=1.0, kv_used=0.2))
    assert verdict is not None
    assert verdict.still_s == 5.0


def test_no_work_is_no_verdict_and_old_progress_is_not_held_against_the_next_request() -> None:
    judge = LivenessJudge(OLD)
    judge.see(HUNG)
    judge.see(replace(HUNG, at=5.0, progress=(901.0, 31.0)))
    assert judge.see(replace(HUNG, at=10.0, held=0, running=0.0)) is None
    verdict = judge.see(replace(HUNG, at=15.0, progress=(901.0, 31.0)))
    assert verdict is not None
    assert (verdict.still_s, verdict.moved_at) == (0.0, 15.0)


def test_a_server_that_queues_its_own_figures_for_ever_is_stuck_after_two_minutes() -> None:
    llama = replace(HUNG, answers=False, running=None, waiting=None, power_w=None, utilization=0.0)
    history = [replace(look, queue_silent_s=look.at, cpu_s=500 + look.at / 5) for look in still(llama, 600)]
    found = named(LivenessJudge(OLD), history)
    assert found.limit_s == LIMITS.voted_s


# Random histories: an engine of some kind, seen through signals of which any may be missing.


@dataclass
class Box:
    """Signs that this box and this engine can tell."""

    power: bool
    band: bool
    cpu: bool
    figures: bool
    kv: bool


def box(rng: random.Random) -> Box:
    return Box(*(rng.random() < p for p in (0.7, 0.6, 0.8, 0.8, 0.8)))


def seen(look: EngineSignals, of: Box) -> EngineSignals:
    if not of.power:
        look = replace(look, power_w=None, utilization=None)
    if not of.cpu:
        look = replace(look, cpu_s=None, processes=None, stopped=None, compilers=(), read_bytes=None)
    if not of.figures:
        look = replace(
            look, answers=None, running=None, waiting=None, deferred=None, kv_used=None, progress=(), asleep=None
        )
    return replace(look, low_w=30.0 if of.power and of.band else None, kv_used=look.kv_used if of.kv else None)


def healthy(rng: random.Random, of: Box) -> Iterator[EngineSignals]:
    """An hour or so of an engine that always does its work, in phases of every kind."""
    at, tokens, done, kv, cpu, read, relayed = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, None
    while at < 3600:
        kind = rng.choice(
            ["decode", "prefill", "step", "jit", "compiler", "grammar", "fetch", "idle", "aborted", "tokenise", "storm"]
        )
        prompts = 20 * 60.0 if of.figures and of.kv else 240.0 if not of.figures or of.power else 200.0
        lasts = {
            "prefill": prompts, "step": 30.0, "jit": 590.0, "compiler": 1200.0, "grammar": 90.0, "fetch": 60.0, "tokenise": 10.0,
        }  # fmt: skip
        if kind in ("jit", "compiler") and not of.cpu:
            lasts[kind] = 100.0  # nobody could tell it from a hang
        over, held = at + rng.uniform(1.0, lasts.get(kind, 300.0)), rng.randint(1, 8)
        while at < over:
            step = rng.uniform(4.0, 9.0) if rng.random() < 0.98 else rng.uniform(9.0, 300.0)
            at += step
            look = EngineSignals(
                at=at, held=held, relayed_at=relayed, health=HealthAnswer.WELL, answers=True, running=float(held), waiting=0.0,
                deferred=0.0, kv_used=kv, progress=(tokens, done), asleep=False, cpu_s=cpu, processes=3, stopped=0,
                read_bytes=read, power_w=rng.uniform(46, 95), utilization=rng.uniform(0.9, 1.0), lag_s=max(0.0, step - 9.0),
            )  # fmt: skip
            cpu += step * rng.uniform(0.0, 1.2)
            if kind in ("decode", "storm"):
                tokens += rng.randint(1, 200)
                relayed = at - rng.uniform(0, 1)
                kv = min(1.0, kv + 0.0001)
            elif kind == "prefill":
                kv = min(1.0, kv + rng.uniform(1e-6, 1e-3)) if kv < 0.999 else 0.5
            elif kind in ("jit", "compiler"):
                cpu += step * 0.7
                compilers = ("ptxas",) if kind == "compiler" else ()
                look = replace(look, power_w=rng.uniform(3, 12), utilization=0.0, compilers=compilers)
            elif kind == "grammar":
                cpu += step * 0.7
                look = replace(look, running=0.0, waiting=1.0, deferred=1.0, power_w=8.0, utilization=0.0)
            elif kind == "fetch":
                read += step * 1e9
                look = replace(look, running=0.0, waiting=1.0, deferred=1.0, power_w=8.0, utilization=0.0)
            elif kind == "idle":
                look = replace(look, held=0, running=0.0, power_w=5.0, utilization=0.0)
            elif kind == "aborted":
                kv = max(0.0, kv - 0.01)
                look = replace(look, held=1 if rng.random() < 0.5 else 0, running=float(rng.randint(0, 1)))
                over = min(over, at + 60.0)
            elif kind == "tokenise":
                cpu += step * 0.7
                look = replace(look, answers=False, health=HealthAnswer.SILENT, power_w=5.0, utilization=0.0)
            yield seen(
                replace(look, kv_used=kv, progress=(tokens, done), cpu_s=cpu, read_bytes=read, relayed_at=relayed), of
            )
        tokens, done, relayed = tokens + 1, done + 1, at  # whatever it was, it ends with an answer


@pytest.mark.parametrize("part", range(4))
def test_no_healthy_engine_is_touched_in_random_histories(part: int) -> None:
    for seed in range(part, HISTORIES, 4):
        rng = random.Random(seed)
        of = box(rng)
        judge = LivenessJudge(rng.choice([OLD, 0.0]))
        found = first_stuck(judge, list(healthy(rng, of)))
        assert found is None, f"seed {seed}: {of} {found}"


def stuck(kind: str, rng: random.Random, of: Box) -> tuple[list[EngineSignals], float]:
    """An engine that stops at some moment, and the threshold that must name it."""
    history = []
    for look in healthy(rng, of):
        history.append(look)
        if look.at > 600:
            break
    at = history[-1].at
    now = replace(HUNG, progress=(1e6, 5.0), relayed_at=at)
    known = of.figures
    seen_at_work = of.power and of.band and kind == "livelock"
    limit = LIMITS.plain_s if known else LIMITS.blind_at_work_s if seen_at_work else LIMITS.blind_s
    spins = False
    if kind == "hung":
        by_cpu = not of.power and of.cpu and known and of.kv
        limit = LIMITS.voted_s if by_cpu or (of.power and of.band) else limit
    elif kind == "frozen":
        now = replace(now, answers=False, health=HealthAnswer.SILENT, stopped=3, power_w=5.0, utilization=0.0)
        limit = LIMITS.stopped_s if of.cpu else LIMITS.voted_s if of.power and of.band else limit
    elif kind == "frozen-core":
        now = replace(now, stopped=1)
        limit = LIMITS.stopped_s if of.cpu else LIMITS.voted_s if of.power and of.band else limit
    elif kind == "livelock":
        now, spins = replace(now, power_w=80.0, utilization=1.0), True
        limit = LIMITS.busy_cpu_s if of.cpu and not of.power else limit
    elif kind == "waiting":
        now = replace(now, running=0.0, waiting=2.0, kv_used=0.0, power_w=5.0, utilization=0.0)
        limit = LIMITS.voted_s if known or (of.power and (of.band or of.cpu)) else limit
    for _ in range(400):
        at += rng.uniform(4.0, 9.0)
        arrivals = {"held": rng.randint(1, 9), "waiting": float(rng.randint(2, 9)) if kind == "waiting" else 0.0}
        history.append(seen(replace(now, at=at, cpu_s=500 + (at if spins else 0), **arrivals), of))
    return history, limit


@pytest.mark.parametrize("kind", ["hung", "frozen", "frozen-core", "livelock", "waiting"])
def test_every_stuck_engine_is_named_within_thirty_seconds_of_its_threshold(kind: str) -> None:
    for seed in range(HISTORIES // 5):
        rng = random.Random(seed)
        of = box(rng)
        history, limit = stuck(kind, rng, of)
        stopped_at = history[-400].at
        found, judge = None, LivenessJudge(OLD)
        for look in history:
            verdict = judge.see(look)
            if verdict is not None and verdict.state is LivenessState.STUCK:
                found = look.at
                break
        assert found is not None, f"seed {seed}: {of} never named"
        assert stopped_at < found <= stopped_at + limit + 30, (
            f"seed {seed}: {of} {found - stopped_at:.0f} of {limit:.0f} s"
        )
