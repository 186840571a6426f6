"""Faults of the simulated engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from leaping import LeapingClock
from simulated import serving

from sparkdash.domain.profile import Profile
from sparkdash.errors import ProfileError
from sparkdash.sim.faults import behaviour
from sparkdash.telemetry.exposition import Scrape

MakeProfile = Callable[..., Profile]
COUNTERS = (
    "vllm:prompt_tokens_total", "vllm:prompt_tokens_by_source_total", "vllm:prompt_tokens_cached_total",
    "vllm:generation_tokens_total", "vllm:iteration_tokens_total_count", "vllm:request_success_total",
    "vllm:num_preemptions_total",
)  # fmt: skip
"""All that a working engine moves, but the use of its KV cache."""
RUNNING, KV = "vllm:num_requests_running", "vllm:kv_cache_usage_perc"


def test_an_unknown_animal_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ProfileError) as caught:
        behaviour("purple")
    assert "dies-loading" in caught.value.text()


@asynccontextmanager
async def asking(url: str, tokens: int) -> AsyncIterator[asyncio.Task[httpx.Response]]:
    """A chat under way."""
    body = {"max_tokens": tokens, "ignore_eos": True, "messages": [{"role": "user", "content": f"{tokens}"}]}
    async with httpx.AsyncClient(timeout=60, verify=False) as http:
        yield asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=body))


async def test_in_a_long_prefill_only_the_use_of_the_cache_moves(
    make_profile: MakeProfile, read_metrics: Callable[[str], Awaitable[Scrape]]
) -> None:
    """Every counter is flat for twenty minutes of small steps; then the whole prompt counts with the first token."""
    scrapes: list[tuple[float, Scrape]] = []
    clock = LeapingClock(turns=50)
    async with (
        serving(make_profile(fault="long-prefill", kv_tokens=32768), clock=clock) as (app, url),
        asking(url, 4) as asked,
    ):
        while not asked.done():
            seen = await read_metrics(url)
            scrapes.append((clock.now(), seen))
        assert app.engine.counters.ttft.total == pytest.approx(1200, rel=0.01)
        prefilling = [(at, seen) for at, seen in scrapes if 0 < at < 1190]
        used = [seen.total(KV) or 0 for _, seen in prefilling if seen.total(RUNNING)]
        assert len(set(used)) > 10, "it rises step by step"
        assert used == sorted(used)
        assert {seen.total(name) for _, seen in prefilling for name in COUNTERS} == {0}
        last = await read_metrics(url)
        assert last.total("vllm:prompt_tokens_total") == 8192 - 4


async def test_the_profile_says_when_its_fault_begins(make_profile: MakeProfile, virtual_clock: Any) -> None:
    profile = make_profile(fault="long-prefill", fault_after_tokens=20)
    async with serving(profile, clock=virtual_clock) as (app, url):
        for tokens, begun in ((19, False), (20, True)):
            async with asking(url, tokens) as asked:
                assert (await asked).status_code == 200
            assert (app.behaviour.prefill_s > 0) is begun
