"""Engines that run and are dead, or answer nonsense: found out by the requests that meet them, and by looks while they are used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from test_supervisor_nodes import SecondNode

from sparkdash.domain.engine import EngineState
from sparkdash.domain.node import NodeStatus
from sparkdash.errors import BadAnswerError, EngineDeadError, UpstreamError
from sparkdash.supervisor.repair import watch

DEAD = EngineDeadError("a answered 500: EngineCore encountered an issue")
PAGE = BadAnswerError("a answered 200 with no JSON object: <html>.")


async def meets(house: Any, trouble: UpstreamError) -> UpstreamError:
    """What a request is left with that had this trouble with the engine of `a`."""

    async def use() -> None:
        async with house.supervisor.lease("a", request_id="r", on_wait=lambda _: None):
            raise trouble

    with pytest.raises(UpstreamError) as caught:
        await house.clock.drive(use())
    await house.settled()
    return caught.value


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that calls itself dead has no time to end by itself."""
    monkeypatch.setattr(watch, "CONFIRM_S", 0.0)


async def test_an_engine_that_calls_itself_dead_and_stays_is_ended(house: Any, make_profile: Any, hasty: None) -> None:
    """vLLM of some versions goes on answering after its engine has died: it is not asked again, but started anew."""
    await house.open(make_profile("a"))
    await house.leased("a")
    error = await meets(house, DEAD)
    assert (error.code, "EngineCore encountered an issue" in error.message) == ("engine_crash", True)
    assert (house.state("a"), house.runtime.here) == (EngineState.FAILED, {})
    await house.leased("a")
    assert [call for call, _ in house.runtime.calls] == ["start", "stop", "start"]


async def test_what_its_log_says_is_the_reason_of_its_death(house: Any, make_profile: Any) -> None:
    """Requests, the notice and the engine's failure all name it; a request that comes to hear of it late, too."""
    await house.open(make_profile("a"))
    came = asyncio.Event()

    async def late() -> None:
        async with house.supervisor.lease("a", request_id="late", on_wait=lambda _: None):
            await came.wait()
            raise UpstreamError("the connection broke off", code="engine_died")

    await house.leased("a")
    slow = asyncio.ensure_future(late())
    await house.clock.rest()
    await house.runtime.kill("a", "ERROR 11-21 02:50:36 Worker proc VllmWorker-0 died unexpectedly (exit code: -9)")
    error = await meets(house, DEAD) if house.state("a") is EngineState.READY else None
    await house.clock.rest()
    came.set()
    with pytest.raises(UpstreamError, match="VllmWorker-0 died unexpectedly") as caught:
        await house.clock.drive(slow)
    assert caught.value.code == "engine_crash"
    assert error is None or "VllmWorker-0 died unexpectedly" in error.message
    failure = house.supervisor.engines["a"].failure
    assert "VllmWorker-0 died unexpectedly" in failure.message
    assert [notice.code for notice in house.notices()] == ["engine_crash"]


async def test_what_its_log_says_is_the_reason_also_where_its_end_is_slow(
    house: Any, make_profile: Any, hasty: None
) -> None:
    """On a busy box it has not exited yet when it is ended: which was seen first makes no difference to who reads it."""
    await house.open(make_profile("a"))
    await house.leased("a")
    words = "WARNING 11-23 00:11:29 [core_client.py:817] [shutdown] MPClient: engine core exited unexpectedly"
    house.runtime.of("a").say(words)
    await house.clock.drive(house.clock.sleep(1))
    error = await meets(house, DEAD)
    assert (error.code, "engine core exited unexpectedly" in error.message) == ("engine_crash", True)
    assert "engine core exited unexpectedly" in house.supervisor.engines["a"].failure.message


async def test_a_bad_answer_of_an_engine_that_works_is_the_requests_own(house: Any, make_profile: Any) -> None:
    """A short generation shows that it does: it stays, and nobody else notices."""
    await house.open(make_profile("a"))
    await house.leased("a")
    assert await meets(house, PAGE) is PAGE
    assert house.state("a") is EngineState.READY
    assert house.notices() == []


async def test_an_engine_that_answers_nonsense_is_ended_told_and_counted(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """Another program has its port, or its model is broken: the second time within ten minutes it is parked."""
    does = house.runtime.zoo["a"] = behaviour()
    await house.open(make_profile("a"))
    for _ in range(2):
        does.talks_nonsense = False
        await house.leased("a")
        does.talks_nonsense = True
        error = await meets(house, PAGE)
        assert error.code == "bad_answer"
        assert error.message == f"{PAGE.message} A short generation failed too: its answer was empty."
        assert (house.state("a"), house.runtime.here) == (EngineState.FAILED, {})
    assert [notice.code for notice in house.notices()] == ["bad_answer", "bad_answer"]
    with pytest.raises(Exception, match="a is parked after 2 failures"):
        await house.leased("a")


async def test_a_server_that_is_not_ours_is_not_parked_for_its_bad_answers(
    house: Any, make_profile: Any, behaviour: Any, serve_engine: Any
) -> None:
    """Nobody here can start it anew: each request that meets a page is told so, and all is well once the server is."""
    does = behaviour()
    server = await serve_engine("a", 0, does=does)
    url = f"http://127.0.0.1:{server.addresses[0][1]}"
    await house.open(make_profile("a", engine="openai", image=None, url=url, model_id="a", gib=None))
    for _ in range(3):
        does.talks_nonsense = False
        await house.leased("a")
        does.talks_nonsense = True
        assert (await meets(house, PAGE)).code == "engine_unreachable"
        assert house.state("a") is EngineState.FAILED
    does.talks_nonsense = False
    await house.leased("a")
    assert house.state("a") is EngineState.READY
    await server.cleanup()


async def test_an_engine_in_use_is_looked_at_and_one_at_rest_is_not(
    house: Any, make_profile: Any, behaviour: Any
) -> None:
    """Three looks in a row that find it broken end it, with the reason; who holds it is told."""
    does = house.runtime.zoo["a"] = behaviour()
    await house.open(make_profile("a"))
    await house.leased("a")
    before, began = does.looks, house.clock.time
    await house.clock.drive(house.clock.sleep(10 * watch.LOOK_EVERY_S))
    assert does.looks - before <= 1  # one that had begun while it was used
    asking = house.ask("a")
    lease = await house.clock.drive(asking.granted())
    await house.clock.drive(house.clock.sleep(5 * watch.LOOK_EVERY_S))
    assert does.looks > before + 2
    assert not lease.lost.done()
    does.health = 503
    error = await house.clock.drive(lease.lost)
    assert (error.code, "/health answered 503" in error.message) == ("engine_unhealthy", True)
    assert house.runtime.here == {}
    assert house.clock.time > began
    await asking.leave()


async def test_an_engine_that_is_slow_to_answer_a_look_is_let_be(
    house: Any, make_profile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy API server answers late: only work that stands still tells it from one that hangs."""
    await house.open(make_profile("a"))
    asking = house.ask("a")
    lease = await house.clock.drive(asking.granted())
    looks = []

    async def no_answer(url: str, **_: Any) -> Any:
        looks.append(url)
        raise UpstreamError("no answer within 2 s", code="engine_timeout")

    monkeypatch.setattr(house.upstream, "get", no_answer)
    await house.clock.drive(house.clock.sleep(6 * watch.LOOK_EVERY_S))
    assert len(looks) > watch.MISSES
    assert not lease.lost.done()
    assert await house.supervisor.sickness(lease.profile, lease.url) is None
    monkeypatch.undo()
    await asking.leave()


async def test_a_request_whose_engine_is_on_a_silent_node_is_told_so(house: Any, make_profile: Any) -> None:
    """At once: the engine itself is given up only after `node_silent_s`."""
    nodes = SecondNode(house)
    await house.open(make_profile("a", node="spark2"), nodes=nodes)
    await house.leased("a")
    why = "spark2 (lab@spark2) cannot be reached: Connection timed out."
    nodes.states["spark2"] = nodes.states["spark2"].replace(status=NodeStatus.UNREACHABLE, reason=why)
    error = await meets(house, UpstreamError("the connection broke off", code="engine_died"))
    assert (error.code, error.message) == ("node_unreachable", f"a cannot be reached. {why}")
    assert house.state("a") is EngineState.READY


async def test_so_is_one_whose_connection_ended_before_its_node_was_known_to_be_silent(
    house: Any, make_profile: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the link closes both, in whatever order."""
    monkeypatch.setattr(watch, "CONFIRM_S", 0.05)
    nodes = SecondNode(house)
    await house.open(make_profile("a", node="spark2"), nodes=nodes)
    await house.leased("a")

    async def refused(_url: str, **_: Any) -> Any:
        nodes.states["spark2"] = nodes.states["spark2"].replace(status=NodeStatus.UNREACHABLE, reason="It is off.")
        raise UpstreamError("nothing listens", code="engine_unreachable")

    monkeypatch.setattr(house.upstream, "get", refused)
    error = await meets(house, UpstreamError("the connection broke off", code="engine_died"))
    assert (error.code, error.message) == ("node_unreachable", "a cannot be reached. It is off.")
