"""Measured speed-ups in a daemon: when they are read, and what of them is published."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkdash.bench import processes
from sparkdash.bus import Bus
from sparkdash.daemon import control_actions
from sparkdash.domain.event import Measuring, MeasuringChanged
from sparkdash.domain.profile import SpeedUp
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.errors import HostError

GAINED = SpeedUp(profile="coder/eagle", plain="coder", ratio=1.36, cells=2, run="r", measured_at=0.0)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A daemon with a bus; what it publishes of profiles is kept as the speed-ups at that time."""
    told: asyncio.Queue[dict[str, SpeedUp]] = asyncio.Queue()
    monkeypatch.setattr(control_actions, "FIRST_S", 0.0)
    monkeypatch.setattr(control_actions, "publish_profiles", lambda one, _catalog: told.put_nowait(one.speed_ups))
    info = DaemonInfo(version="1", host="h", pid=1, started_at=0.0, runtime="none", url="u")
    return SimpleNamespace(
        bus=Bus(Snapshot(seq=0, at=0.0, daemon=info), lambda: 1.0),
        parts=SimpleNamespace(simulated=False),
        supervisor=SimpleNamespace(catalog=None),
        speed_ups={},
        told=told,
    )


async def test_speed_ups_are_read_at_the_start_and_after_each_measurement(
    daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A measurement that goes on changes nothing; the end of the bus ends the watch."""
    answers = iter([(), (GAINED,)])

    async def read(*, simulated: bool) -> tuple[SpeedUp, ...]:
        assert not simulated
        return next(answers)

    monkeypatch.setattr(processes, "read_speed_ups", read)
    watch = asyncio.create_task(control_actions.watch_runs(cast("Any", daemon)))
    async with asyncio.timeout(30):
        assert await daemon.told.get() == {}
        going_on = Measuring(run="r", doing="measuring", arm="a", launch=1, launches=2, done=1, cells=2, share=0.5)
        daemon.bus.publish(MeasuringChanged(measuring=going_on))
        daemon.bus.publish(MeasuringChanged(measuring=None))
        assert await daemon.told.get() == {"coder/eagle": GAINED}
        daemon.bus.end()
        with suppress(asyncio.CancelledError):
            await watch
    assert daemon.told.empty()


async def test_runs_that_cannot_be_read_change_nothing(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*, simulated: bool) -> tuple[SpeedUp, ...]:
        raise HostError(f"The runs cannot be read ({simulated}).", code="report_failed")

    monkeypatch.setattr(processes, "read_speed_ups", fails)
    daemon.speed_ups = {"coder/eagle": GAINED}
    await control_actions.read_again(cast("Any", daemon))
    assert daemon.speed_ups == {"coder/eagle": GAINED}
    assert daemon.told.empty()
