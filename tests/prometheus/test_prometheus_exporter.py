"""The exporter on a bus: what it counts while nobody asks."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from scraped import ALPHA, NOW, ended, scraped_state, swap

from sparkdash.bus import Bus
from sparkdash.domain.event import ProfilesChanged, SwapChanged
from sparkdash.domain.swap import SwapOutcome
from sparkdash.prometheus import MetricsExporter, page
from sparkdash.prometheus.totals import OTHER, ScrapedState


async def test_it_counts_what_the_bus_tells_and_what_the_gateway_records() -> None:
    bus = Bus(scraped_state().snapshot.replace(swaps=(), profiles=()), lambda: NOW)
    exporter = MetricsExporter(bus, dict, clock=lambda: NOW)
    running = asyncio.create_task(exporter.run())
    await asyncio.sleep(0)
    exporter.record(ended())
    bus.publish(ProfilesChanged(profiles=scraped_state().snapshot.profiles))
    for number in range(40):  # more than a snapshot remembers
        bus.publish(SwapChanged(swap=swap(str(number), ended_at=NOW - 1, outcome=SwapOutcome.DONE)))
    bus.end()
    await running
    exporter.record(ended())
    exporter.record(ended("what a client wrote"))
    state = exporter.state()
    assert state.swaps.swaps == {(ALPHA, "done"): 40}
    assert {profile: count for (profile, *_), count in state.requests.requests.items()} == {OTHER: 2, ALPHA: 1}
    page, _ = await exporter.page("")
    assert b'sparkdash_swaps_total{outcome="done",profile="alpha"} 40.0' in page
    assert b"what a client wrote" not in page


async def test_a_page_is_made_aside_from_the_loop_and_what_happens_meanwhile_is_left_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page takes tens of milliseconds, for which every relayed chunk would wait."""
    exporter = MetricsExporter(Bus(scraped_state().snapshot, lambda: NOW), dict, clock=lambda: NOW)
    exporter.record(ended())
    begun, goes_on = asyncio.Event(), threading.Event()
    loop, collect = asyncio.get_running_loop(), page.collect_families

    def collect_slowly(state: ScrapedState) -> tuple[Any, ...]:
        loop.call_soon_threadsafe(begun.set)
        assert goes_on.wait(30)
        return collect(state)

    monkeypatch.setattr(page, "collect_families", collect_slowly)
    scrape = asyncio.create_task(exporter.page(""))
    await begun.wait()  # the loop is free while the page is made
    exporter.record(ended())
    goes_on.set()
    text, _ = await scrape
    assert counted(text) == [1.0]
    assert counted((await exporter.page(""))[0]) == [2.0]


def counted(text: bytes) -> list[float]:
    return [
        float(line.rpartition(b" ")[2]) for line in text.splitlines() if line.startswith(b"sparkdash_requests_total")
    ]
