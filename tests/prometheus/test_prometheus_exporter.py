"""The exporter on a bus: what it counts while nobody asks."""

from __future__ import annotations

import asyncio

from scraped import ALPHA, NOW, ended, scraped_state, swap

from sparkdash.bus import Bus
from sparkdash.domain.event import ProfilesChanged, SwapChanged
from sparkdash.domain.swap import SwapOutcome
from sparkdash.prometheus import MetricsExporter
from sparkdash.prometheus.request_totals import OTHER


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
