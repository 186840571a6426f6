"""Rhythm of the collector: slow, dying and crashing sources, and ticks without listeners."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from running_collector import IMPATIENT_S, Watch, collecting, counting

from sparkdash.domain.engine import EngineState
from sparkdash.domain.metric import Metric
from sparkdash.telemetry import source


async def test_collector_does_not_wait_for_a_slow_engine(
    watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow engine keeps its last values with their time, has one request in flight, and holds up no other."""
    monkeypatch.setattr(source, "ANSWER_S", 600)
    slow, quick = await new_engine(), await new_engine()
    counting(slow, 40)
    counting(quick, 20)
    watch.engines = {"slow": engine(slow.url, "slow"), "quick": engine(quick.url, "quick")}
    async with collecting(watch, time, box, wait_s=IMPATIENT_S):
        last = await watch.until(lambda s: s.engines["slow"].get(Metric.DECODE) is not None)
        slow.free.clear()
        stuck = await watch.until(lambda s: s.engines["slow"].error and s.at - s.engines["slow"].at >= 2)
        asked = slow.asked
        since = stuck.engines["quick"].at
        await watch.until(lambda s: s.engines["quick"].at > since and s.engines["quick"].error is None)
        assert slow.asked == asked
        slow.free.set()
        again = await watch.until(lambda s: s.engines["slow"].error is None)
    assert stuck.engines["slow"].get(Metric.DECODE) == last.engines["slow"].get(Metric.DECODE)
    assert "no answer for" in (stuck.engines["slow"].error or "")
    assert again.engines["slow"].at > stuck.engines["slow"].at
    assert slow.at_once == 1


async def test_collector_survives_a_dying_engine(
    watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any
) -> None:
    """An engine that dies keeps its last values, says why there is nothing newer, and is asked less often."""
    server = await new_engine()
    counting(server, 40)
    watch.engines = {"coder": engine(server.url)}
    async with collecting(watch, time, box):
        alive = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
        await server.server.close()
        dead = await watch.until(lambda s: s.engines["coder"].error)
        assert "Nothing answers" in (dead.engines["coder"].error or "")
        much_later = await watch.until(lambda s: s.at > dead.at + 20)
    assert much_later.engines["coder"].values == alive.engines["coder"].values | dead.engines["coder"].values
    assert much_later.engines["coder"].at == dead.engines["coder"].at


async def test_collector_backs_off(watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any) -> None:
    """After three failures in a row an engine is asked every five seconds, and every tick again once it answers."""
    server = await new_engine()
    server.status = 503
    watch.engines = {"coder": engine(server.url)}
    async with collecting(watch, time, box):
        first = await watch.sample()
        await watch.until(lambda s: s.at >= first.at + 22)
        failed = server.asked
        server.status, server.text = 200, "vllm:num_requests_running 0"
        healed = await watch.until(lambda s: s.engines["coder"].error is None)
        before = server.asked
        await watch.until(lambda s: s.at >= healed.at + 5)
    assert failed == 3 + 4
    assert server.asked - before >= 5


async def test_collector_goes_on_after_a_crash(watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any) -> None:
    """A part that crashes is logged each time and told of once; the rest is measured, and so is it when it works again."""
    server = await new_engine()
    counting(server, 40)
    watch.engines = {"coder": engine(server.url)}
    box.broken = ZeroDivisionError("no memory at all")
    with structlog.testing.capture_logs() as logs:
        async with collecting(watch, time, box):
            sample = await watch.until(lambda s: s.engines["coder"].get(Metric.DECODE) is not None)
            box.broken = None
            healed = await watch.until(lambda s: s.memory is not None)
    assert sample.memory is None
    assert healed.memory is not None
    assert [notice.code for notice in watch.notices] == ["telemetry_failed"]
    assert "no memory at all" in watch.notices[0].text
    assert len(logs) >= 2


async def test_collector_goes_on_when_a_whole_tick_crashes(watch: Watch, time: Any, box: Any) -> None:
    """A tick that cannot even begin is told of once, and the next one comes in its time."""
    watch.crashes = 3
    with structlog.testing.capture_logs() as logs:
        async with collecting(watch, time, box):
            sample = await watch.sample()
    assert sample.at == time.unix() - time.now + 1003
    assert [notice.text for notice in watch.notices] == [
        "A measurement failed and is tried again: RuntimeError: the books are closed"
    ]
    assert len(logs) == 3


@pytest.mark.parametrize(("running", "between"), [(True, 5.0), (False, 15.0)])
async def test_collector_is_slower_when_nobody_looks(
    watch: Watch, time: Any, box: Any, engine: Any, running: bool, between: float
) -> None:
    """With no listener ticks are 5 s apart, 15 s when no engine runs, and a new listener waits a second at most."""
    watch.listeners = 0
    watch.engines = {"coder": engine(None, state=EngineState.READY if running else EngineState.FAILED)}
    async with collecting(watch, time, box):
        first, second = await watch.sample(), await watch.sample()
        watch.listeners = 1
        third = await watch.sample()
    assert second.at - first.at == pytest.approx(between)
    assert third.at - second.at <= 1.0
    assert max(time.slept) <= 1.0


async def test_collector_slow_ticks_are_no_gaps(
    watch: Watch, time: Any, box: Any, new_engine: Any, engine: Any
) -> None:
    """Rates are known at five-second ticks too, and when ticks become fast again."""
    server = await new_engine()
    counting(server, 200)
    watch.listeners = 0
    watch.engines = {"coder": engine(server.url)}
    async with collecting(watch, time, box):
        await watch.sample()
        slow = await watch.sample()
        watch.listeners = 1
        quick = await watch.sample()
    assert slow.engines["coder"].get(Metric.DECODE) == pytest.approx(40.0)
    assert quick.engines["coder"].get(Metric.DECODE) is not None
