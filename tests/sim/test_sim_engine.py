"""The simulated engine: its speed, its prefix cache and its words."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.domain.profile import SimSpec, SimSpeed
from sparkdash.sim import prose
from sparkdash.sim.engine import SimulatedEngine, SimulatedRequest
from sparkdash.sim.speed import PrefixCache, SimulatedTiming, SimulationClock, text_of, token_id, tokenize


@given(st.text())
def test_tokens_hold_the_whole_text(text: str) -> None:
    tokens = tokenize(text)
    assert text_of(tokens) == text
    assert len({token_id(token) for token in tokens}) == len(set(tokens))
    assert all(token_id(token) < 2**53 for token in tokens)


@given(st.text(), st.text())
def test_tokens_are_stable_under_continuation(begin: str, more: str) -> None:
    known = tokenize(begin)[:-1]
    assert tokenize(begin + more)[: len(known)] == known


def test_script_ends_at_its_limit_or_by_itself() -> None:
    ends = {
        (limit, natural): [
            w.finish for w in prose.cut_answer(prose.answer_tokens("m", "s"), limit=limit, natural=natural)
        ]
        for limit, natural in ((5, None), (9, 5), (5, 5))
    }
    assert ends[5, None] == [None] * 4 + ["length"]
    assert ends[9, 5] == [None] * 4 + ["stop"]
    assert ends[5, 5] == [None] * 4 + ["length"]


def test_stop_strings_never_show() -> None:
    words = list(prose.cut_answer(iter(tokenize("one two STOP three")), limit=99, natural=None, stops=("two STOP",)))
    assert "".join(word.text for word in words) == "one "
    assert (words[-1].finish, words[-1].stop_reason) == ("stop", "two STOP")


def words(text: str) -> list[bytes]:
    return [character.encode() for character in text]


def stored(cache: PrefixCache, text: str) -> None:
    tokens = words(text)
    holding = cache.take(cache.matched(tokens))
    assert cache.grow(holding, len(tokens))
    cache.publish(holding, tokens)
    cache.release(holding)


def test_known_beginnings_are_matched_in_whole_blocks() -> None:
    cache = PrefixCache(64, block=4)
    stored(cache, "aaaabbbbcccc")
    assert len(cache.matched(words("aaaabbbbXXXX"))) == 2
    assert len(cache.matched(words("aaaaXbbbcccc"))) == 1
    assert cache.matched(words("Xaaabbbbcccc")) == []


@given(st.lists(st.tuples(st.text("ab", max_size=40), st.booleans()), max_size=30))
def test_counts_balance_whatever_comes(requests: list[tuple[str, bool]]) -> None:
    cache = PrefixCache(48, block=4)
    open_ones = []
    for text, leaves in requests:
        tokens = words(text)
        holding = cache.take(cache.matched(tokens))
        if cache.grow(holding, len(tokens)):
            cache.publish(holding, tokens)
        open_ones.append(holding)
        assert 0 <= cache.in_use <= cache.blocks
        if leaves:
            cache.release(open_ones.pop(0))
    for holding in open_ones:
        cache.release(holding)
    assert cache.in_use == 0


SPEEDS = (SimSpeed(context=0, decode_tok_s=50, prefill_tok_s=1000),)


@asynccontextmanager
async def engine_of(
    clock: SimulationClock, *, kv_tokens: int = 65536, seats: int = 16, **spec: Any
) -> AsyncIterator[SimulatedEngine]:
    engine = SimulatedEngine(
        SimulatedTiming(SimSpec(speeds=SPEEDS, **spec)), PrefixCache(kv_tokens), clock, seats=seats
    )
    stepping = asyncio.create_task(engine.run())
    try:
        yield engine
    finally:
        stepping.cancel()
        await asyncio.gather(stepping, return_exceptions=True)


def ask(engine: SimulatedEngine, text: str, answer: int, seed: str = "s") -> SimulatedRequest:
    """Queue a prompt whose answer has exactly `answer` tokens."""
    words = prose.cut_answer(prose.answer_tokens("m", seed), limit=answer, natural=None)
    return engine.submit(tokenize(text), words, limit=answer, seed=seed)


async def ended(engine: SimulatedEngine, *runs: SimulatedRequest) -> None:
    for run in runs:
        async for _ in engine.stream(run):
            pass


def text_of_tokens(count: int, seed: str = "long") -> str:
    text = prose.paragraph(prose.seeded_random(seed), count)
    return b"".join(tokenize(text)[:count]).decode()


async def test_cached_prompt_tokens_cost_no_time(virtual_clock: Any) -> None:
    async with engine_of(virtual_clock) as engine:
        text = text_of_tokens(3200)
        await ended(engine, ask(engine, text, 1))
        begun = virtual_clock.now()
        again = ask(engine, text + " and now?", 1)
        await ended(engine, again)
        assert again.cached == 3200
        assert again.last - begun == pytest.approx((again.prompt - again.cached) / 1000)
        assert (engine.counters.queries, engine.counters.hits) == (3200 + again.prompt, 3200)


async def test_speculation_keeps_the_net_speed_and_accepts_as_told(virtual_clock: Any) -> None:
    async with engine_of(virtual_clock, acceptance=(0.8, 0.5)) as engine:
        run = ask(engine, "hello", 20_001)
        await ended(engine, run)
        assert run.first is not None
        assert 20_000 / (run.last - run.first) == pytest.approx(50, rel=0.02)
        shares = [count / engine.counters.drafts for count in engine.counters.accepted_at]
        assert shares == pytest.approx([0.8, 0.4], abs=0.015)
        assert engine.counters.generated == 20_001


async def test_speed_falls_with_context_as_told(virtual_clock: Any) -> None:
    pace = SimulatedTiming(
        SimSpec(
            speeds=(
                SimSpeed(context=1000, decode_tok_s=60, prefill_tok_s=2000),
                SimSpeed(context=3000, decode_tok_s=40, prefill_tok_s=1000),
            )
        )
    )
    assert [1 / pace.step_s([context]) for context in (0, 1000, 2000, 3000, 9000)] == pytest.approx(
        [60, 60, 50, 40, 40]
    )
    assert pace.prefill_s(1500, 2000) == pytest.approx(1.0)


async def test_a_full_cache_preempts_the_last_one_and_loses_nothing(virtual_clock: Any) -> None:
    async with engine_of(virtual_clock, kv_tokens=512) as engine:
        runs = [ask(engine, "hello", 400, seed=str(number)) for number in range(2)]
        await ended(engine, *runs)
        assert engine.counters.preemptions >= 1
        assert [run.produced for run in runs] == [400, 400]
        assert engine.counters.generated == 800
        assert engine.counters.prompt == 2 * runs[0].prompt
        assert engine.cache.in_use == 0


async def test_a_request_as_large_as_the_cache_still_ends(virtual_clock: Any) -> None:
    async with engine_of(virtual_clock, kv_tokens=512, acceptance=(1.0, 1.0)) as engine:
        run = ask(engine, text_of_tokens(112), 400)
        await asyncio.wait_for(ended(engine, run), 60)
        assert run.produced == 400


async def test_the_same_request_gives_the_same_chunks(virtual_clock: Any) -> None:
    async def sizes(engine: SimulatedEngine, run: SimulatedRequest) -> list[int]:
        return [piece.tokens async for piece in engine.stream(run)]

    async with engine_of(virtual_clock, acceptance=(0.7, 0.6)) as engine:
        alone = await sizes(engine, ask(engine, "hello", 100))
        mate = ask(engine, "other", 100, seed="mate")
        together = await sizes(engine, ask(engine, "hello", 100))
        await ended(engine, mate)
    assert alone == together
    assert max(alone) == 3
