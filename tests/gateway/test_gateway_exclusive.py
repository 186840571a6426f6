"""One client has the gateway to itself: who else asks is told, and a holder that dies has let go."""

from typing import Any

import pytest

from sparkdash.domain.request import LEASE_HEADER
from sparkdash.domain.swap import SwapCause
from sparkdash.errors import AdmissionError
from sparkdash.gateway.exclusive import TTL_S, Exclusive

CHAT = {"model": "a", "messages": [{"role": "user", "content": "hi"}]}


def test_a_holder_that_stops_renewing_has_let_go() -> None:
    """Nothing else ends the lease of a process that was killed."""
    now = [100.0]
    exclusive = Exclusive(lambda: now[0])
    held = exclusive.take("bench")
    now[0] += TTL_S - 1
    exclusive.renew(held.token)
    now[0] += TTL_S - 1
    with pytest.raises(AdmissionError) as refused:
        exclusive.admit(None)
    assert (refused.value.code, refused.value.status) == ("held", 503)
    now[0] += 1
    exclusive.admit(None)
    with pytest.raises(AdmissionError, match="lapsed"):
        exclusive.renew(held.token)


def test_who_waits_is_told_when_to_come_back() -> None:
    """A holder that is silent may have been killed long before it expected to be done: then the time until it has let go."""
    now = [100.0]
    exclusive = Exclusive(lambda: now[0])
    exclusive.take("sparkdash bench (seeds)", 300)
    now[0] += 5
    with pytest.raises(AdmissionError, match=r"sparkdash bench \(seeds\)") as refused:
        exclusive.take("another")
    assert refused.value.retry_after == 295
    now[0] += 6
    with pytest.raises(AdmissionError, match="silent for 11 s; after 4 s more, the box is free") as refused:
        exclusive.admit(None)
    assert refused.value.retry_after == TTL_S - 11


@pytest.mark.parametrize("token", ["\xff\x80", "ключ", "\ud800", ""])
def test_a_token_of_any_bytes_is_a_wrong_one(token: str) -> None:
    """Headers are bytes: whoever sends odd ones is refused like anybody else."""
    exclusive = Exclusive()
    exclusive.take("a bench")
    with pytest.raises(AdmissionError) as refused:
        exclusive.admit(token)
    assert refused.value.code == "held"
    with pytest.raises(AdmissionError) as lost:
        exclusive.renew(token)
    assert lost.value.code == "lease_lost"
    exclusive.release(token)
    assert exclusive.held is not None


async def test_others_get_a_503_and_the_holder_an_answer(house: Any) -> None:
    """Requests and swaps are refused to the others; stopping is not."""
    endless = b'{"holder": "the bench", "expected_s": 1e999}'  # JSON's way to infinity
    refused = await house.client.post("/api/lease", content=endless, headers={"content-type": "application/json"})
    assert refused.json()["error"]["code"] == "invalid_request"
    granted = (await house.client.post("/api/lease", json={"holder": "the bench", "expected_s": 60})).json()
    mine = {LEASE_HEADER: granted["token"]}

    refused = await house.client.post("/v1/chat/completions", json=CHAT)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "held")
    assert TTL_S < int(refused.headers["retry-after"]) <= 60
    assert "the bench" in refused.json()["error"]["message"]
    assert (await house.client.post("/api/use", json={"profile": "coder"})).status_code == 503
    assert (await house.client.post("/api/toggle", json={"a": "coder", "b": "coder", "flip": True})).status_code == 503
    assert (await house.client.post("/api/lease", json={"holder": "another"})).status_code == 503
    assert (await house.client.post("/api/stop", json={})).status_code == 200
    assert (await house.client.post("/api/stop", json={}, headers=mine)).status_code == 200
    assert house.supervisor.stop_causes == [SwapCause.USER, SwapCause.BENCH], "what a bench stops, no person stopped"

    assert (await house.client.post("/api/use", json={"profile": "coder", "cause": "bench"}, headers=mine)).is_success
    assert (await house.client.delete("/api/lease", headers=mine)).is_success
    assert (await house.client.post("/api/use", json={"profile": "coder"})).is_success


STEP = {"run": "20261121-200000-seeds", "doing": "measuring", "arm": "eagle", "launch": 2, "launches": 4}
STEP |= {"done": 15, "cells": 36, "share": 0.42}


async def test_a_run_tells_how_far_it_is_and_is_asked_to_end(house: Any) -> None:
    """The run is told when it next renews; its progress is on every screen until it lets go."""
    told = {"holder": "the bench", "measuring": STEP}
    granted = (await house.client.post("/api/lease", json=told)).json()
    assert granted["ends"] is False
    assert (house.bus.snapshot.measuring.done, house.bus.snapshot.measuring.ends) == (15, False)
    assert (await house.client.post("/api/bench/end", json={})).is_success
    assert house.bus.snapshot.measuring.ends
    renewed = (await house.client.post("/api/lease", json=told | {"token": granted["token"]})).json()
    assert renewed["ends"] is True
    assert (await house.client.delete("/api/lease", headers={LEASE_HEADER: granted["token"]})).is_success
    assert house.bus.snapshot.measuring is None
    refused = await house.client.post("/api/bench/end", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_held")


async def test_a_run_goes_on_unless_another_is_measured(house: Any) -> None:
    assert (await house.client.post("/api/bench/a%2Fb/resume", json={})).status_code == 404
    assert (await house.client.post("/api/bench/2026/resume", json={})).status_code == 202
    assert house.done == [("resume", "2026")]
    assert (await house.client.post("/api/lease", json={"holder": "the bench"})).is_success
    assert (await house.client.post("/api/bench/2026/resume", json={})).json()["error"]["code"] == "held"


async def test_a_run_is_planned_at_any_time_and_begun_alone(house: Any) -> None:
    """By any name of a profile; a path is no name of a suite."""
    wish = {"profiles": ["alpha"], "suite": "smoke", "begin": True}
    plan = (await house.client.post("/api/bench", json=wish)).json()
    assert (plan["expected_s"], plan["begun"], house.done) == (60.0, True, [("start", "alpha", "smoke", True)])
    assert (await house.client.post("/api/lease", json={"holder": "the bench"})).is_success
    assert (await house.client.post("/api/bench", json=wish | {"begin": False})).status_code == 202
    assert (await house.client.post("/api/bench", json=wish)).json()["error"]["code"] == "held"
    assert (await house.client.post("/api/bench", json=wish | {"suite": "../x.yaml"})).status_code == 400


async def test_a_setting_that_runs_programs_is_not_changed_over_tcp(house: Any) -> None:
    told = {"key": ["reserve_gib"], "value": "12"}
    assert (await house.client.post("/api/settings", json=told)).is_success
    assert house.done == [("setting", "reserve_gib", "12")]
    refused = await house.client.post("/api/settings", json={"key": ["runtime"], "value": "docker"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "socket_only")
