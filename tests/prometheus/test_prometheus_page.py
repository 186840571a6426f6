"""The page of metrics: its names, its labels, that its figures are those of the state, and what is counted while nobody asks."""

import asyncio
import re
import threading
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as classic
from scraped import ALPHA, BETA, NOW, ended, scraped_state, swap

from sparkdash.bus import Bus
from sparkdash.domain.event import ProfilesChanged, SwapChanged
from sparkdash.domain.memory import Guard, GuardKill
from sparkdash.domain.metric import Memory
from sparkdash.domain.request import RequestState
from sparkdash.domain.swap import SwapOutcome, SwapPhase
from sparkdash.prometheus import MetricsExporter, page
from sparkdash.prometheus.page import collect_families, memory_by_owner, write_page
from sparkdash.prometheus.totals import (
    DRAIN,
    MEMORY,
    MOST_CLIENTS,
    OTHER,
    QUEUE,
    SWAP,
    RequestTotals,
    ScrapedState,
    SwapTotals,
)

UNITS = ("seconds", "bytes", "joules", "celsius", "ratio", "hertz", "watts", "tokens")
PLAIN = {
    "build_info", "engine_info", "engine_state", "engine_requests", "requests", "queue_requests", "swaps",
    "guard_state", "guard_acts", "prefix_queries", "prefix_hits", "draft_steps", "link_errors", "scrape_failures",
    "simulated",
}  # fmt: skip
"""Names without a unit: what they count is their last word."""

Sample = tuple[str, frozenset[tuple[str, str]]]


def samples(page: bytes) -> dict[Sample, float]:
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in classic(page.decode())
        for one in family.samples
    }


def value(page: dict[Sample, float], name: str, **labels: str) -> float:
    found = [v for (of, have), v in page.items() if of == f"sparkdash_{name}" and have >= set(labels.items())]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def written(state: ScrapedState) -> dict[Sample, float]:
    return samples(write_page(state, "")[0])


def test_every_family_has_a_sample_on_a_box_at_work() -> None:
    page = written(scraped_state())
    told = {name for name, _ in page}
    for family in collect_families(scraped_state()):
        assert any(name.startswith(family.name) for name in told), family.name


def test_names_follow_the_conventions() -> None:
    """Base units in the names, `_total` at the end of counters alone, a text for each."""
    families = collect_families(scraped_state())
    assert len({family.name for family in families}) == len(families)
    for family in families:
        name = family.name.removeprefix("sparkdash_")
        assert family.name.startswith("sparkdash_")
        assert re.fullmatch(r"[a-z][a-z_]+[a-z]", name)
        assert name in PLAIN or name.endswith(UNITS), name
        assert not name.endswith(("total", "count", "sum", "bucket")), name
        assert family.documentation.endswith(".")
        totals = {sample.name.endswith("_total") for sample in family.samples}
        assert totals == {family.type == "counter"}, name


@pytest.mark.parametrize("simulated", [True, False])
def test_a_demo_says_that_its_figures_are_invented(simulated: bool) -> None:
    state = scraped_state()
    daemon = state.snapshot.daemon.replace(simulated=simulated)
    page = written(replace(state, snapshot=state.snapshot.replace(daemon=daemon)))
    assert value(page, "simulated") == simulated


def test_both_formats_have_the_same_figures() -> None:
    page, kind = write_page(scraped_state(), "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert kind.startswith("application/openmetrics-text")
    assert page.endswith(b"# EOF\n")
    found = {(s.name, frozenset(s.labels.items())): s.value for f in open_metrics(page.decode()) for s in f.samples}
    assert found == written(scraped_state())
    assert write_page(scraped_state(), "*/*")[1].startswith("text/plain; version=0.0.4")


def test_figures_are_those_of_the_state() -> None:
    page = written(scraped_state())
    assert value(page, "output_tokens_total", profile=ALPHA, source="engine", engine="vllm", node="local") == 10
    assert value(page, "reasoning_tokens_total", source="gateway") == 20
    assert value(page, "draft_accepted_tokens_total", position="1") == 3
    assert value(page, "engine_state", profile=ALPHA, state="serving") == 1
    assert value(page, "engine_state", profile=BETA, state="stalled") == 1
    assert value(page, "engine_requests", profile=ALPHA, phase="decoding") == 3
    assert value(page, "request_duration_seconds_sum", profile=ALPHA, client="codex") == 4
    assert value(page, "time_per_output_token_seconds_bucket", le="0.04") == 1
    assert value(page, "time_per_output_token_seconds_bucket", le="0.03") == 0
    assert value(page, "queue_requests", profile=BETA, reason=SWAP) == 1
    assert value(page, "queue_oldest_seconds", profile=BETA) == 9
    assert value(page, "swap_stage_seconds_sum", stage="load") == 20
    assert value(page, "load_progress_ratio", profile=BETA) == 0.4
    assert value(page, "load_last_sign_seconds", profile=BETA) == 3
    assert value(page, "gpu_clock_hertz", node="local") == 2.4e9
    assert value(page, "energy_joules_total", use="idle", sensor="GPU only") == 10_800
    assert value(page, "link_errors_total", node="spark2", device="cx7") == 2
    assert value(page, "link_bytes_total", node="spark2", device="cx7", direction="sent") == 8


def test_an_unknown_figure_is_absent() -> None:
    state = scraped_state()
    blind = replace(state, snapshot=state.snapshot.replace(sample=None), engines={}, store_bytes=None)
    told = {name for name, _ in written(blind)}
    absent = ("memory_bytes", "kv_used_ratio", "gpu_power_watts", "energy_joules_total", "store_bytes")
    assert not told & {f"sparkdash_{name}" for name in absent}
    assert value(written(blind), "output_tokens_total", source="gateway") == 50


@pytest.mark.parametrize(
    "memory",
    [
        Memory(total=1000, available=500, free=300, page_cache=100, engines={"a": 400, "b": None}, reserve=50),
        Memory(total=1000, available=500, free=300, page_cache=600, engines={"a": 400}, reserve=500),
        Memory(total=1000, available=0, free=0),
    ],
    ids=["an engine of unknown size", "figures that overlap", "nothing free"],
)
def test_memory_by_owner_adds_up_to_the_total(memory: Memory) -> None:
    shares = memory_by_owner(memory)
    assert sum(shares.values()) == memory.total
    assert min(shares.values()) >= 0
    assert shares["free"] == memory.free, "free memory is here what it is on the screens, the reserve within"


def test_labels_stay_few_whatever_clients_send() -> None:
    """A thousand programs, routes, words and codes become a bounded number of series."""
    totals = RequestTotals()
    for number in range(1000):
        request = ended(
            client=f"client{number}", route=f"/v1/{number}", finish_reason=f"word{number}", key=f"key{number}"
        )
        totals.add(request, ALPHA, lambda *_: QUEUE)
    assert len(totals.requests) == MOST_CLIENTS + 1
    assert {(route, finish) for _, _, route, _, finish in totals.requests} == {(OTHER, OTHER)}
    assert totals.requests[ALPHA, OTHER, OTHER, "200", OTHER] == 1000 - MOST_CLIENTS


def test_a_failed_and_an_abandoned_request_say_so() -> None:
    totals = RequestTotals()
    for state, status in ((RequestState.FAILED, 503), (RequestState.GONE, None)):
        totals.add(ended(state=state, status=status, finish_reason=None), ALPHA, lambda *_: QUEUE)
    assert {(code, finish) for *_, code, finish in totals.requests} == {("503", "error"), ("", "client_left")}


@pytest.mark.parametrize(("stages", "reason"), [
    ({SwapPhase.DRAIN: 1.0, SwapPhase.LOAD: 9.0}, SWAP), ({SwapPhase.DRAIN: 9.0, SwapPhase.LOAD: 1.0}, DRAIN),
    ({SwapPhase.RECLAIM: 6.0, SwapPhase.LOAD: 4.0}, MEMORY),
])  # fmt: skip
def test_a_wait_is_blamed_on_the_swap_that_it_overlaps(stages: dict[SwapPhase, float], reason: str) -> None:
    totals = SwapTotals()
    done = swap("1", stage_s=stages, ended_at=NOW - 10, outcome=SwapOutcome.DONE)
    totals.add(done)
    totals.add(done)
    assert totals.reason(ALPHA, NOW - 15, NOW - 9) == reason
    assert totals.reason(ALPHA, NOW - 5, NOW) == QUEUE
    assert totals.reason(BETA, NOW - 15, NOW - 9) == QUEUE
    assert totals.swaps == {(ALPHA, "done"): 1}


def test_a_kill_of_the_guard_counts_once() -> None:
    totals = SwapTotals()
    kills = tuple(GuardKill(at=at, profile=ALPHA, available=1, reason="r") for at in (2.0, 1.0))
    for seen in (kills[1:], kills, kills):
        totals.see_guard(Guard(mode="act", kills=seen))
    assert totals.kills == 2


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
