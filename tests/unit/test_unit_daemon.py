"""The daemon's own few decisions."""

from __future__ import annotations

import asyncio
import resource
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkdash.bus import Bus
from sparkdash.daemon import build, control_actions, lifecycle, reloading
from sparkdash.daemon.profile_files import FilesChange
from sparkdash.domain.event import Level, Notice
from sparkdash.errors import HostError


@pytest.mark.parametrize("stop_engines", [True, False])
async def test_the_daemon_ends_also_when_an_engine_will_not(stop_engines: bool) -> None:
    """A request for both ends does not leave a daemon that serves on as if nothing had been said."""
    told: list[str] = []

    async def stop(_profile: str | None) -> None:
        raise HostError("Process 7 does not end.", code="unkillable")

    supervisor, server = SimpleNamespace(stop=stop), SimpleNamespace(stop=lambda: told.append("stopped"))
    await control_actions.shutdown(cast("Any", SimpleNamespace(supervisor=supervisor, server=server)), stop_engines)
    assert told == ["stopped"]


@pytest.mark.parametrize(
    ("looks", "reads"),
    [
        ([(False, None)], 0),
        ([(True, None)], 1),
        ([(False, 1e-6), (False, 1e-6), (True, None)], 1),
        ([(True, 1e-6), (False, None)], 1),
        ([(False, 1e-6), (False, None)], 0),
        ([(False, 1e-6)] * 99, 0),
    ],
)
async def test_files_are_read_once_they_are_whole(
    looks: list[tuple[bool, float | None]], reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is written all the time keeps nobody who asks."""
    read: list[object] = []
    seen = iter([FilesChange(*each) for each in looks])

    async def noted(daemon: object) -> None:
        read.append(daemon)

    async def look() -> FilesChange:
        return next(seen)

    monkeypatch.setattr(reloading, "_read", noted)
    daemon = SimpleNamespace(reload_lock=asyncio.Lock(), files=SimpleNamespace(look=look))
    await reloading.refresh(cast("Any", daemon))
    assert len(read) == reads


async def test_a_reading_that_takes_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller meanwhile gets what held before."""
    monkeypatch.setattr(reloading, "ANSWER_S", 0.01)
    daemon = SimpleNamespace(reload_lock=asyncio.Lock())
    async with daemon.reload_lock:
        await reloading.refresh(cast("Any", daemon))


@pytest.mark.parametrize(
    ("soft", "hard", "then"),
    [
        (1024, 524_288, 65_536),
        (1024, 4096, 4096),
        (1024, resource.RLIM_INFINITY, 65_536),
        (100_000, 524_288, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_streams_do_not_end_at_the_usual_limit_of_open_files(
    soft: int, hard: int, then: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two descriptors for each: five hundred of them. What the owner has forbidden stays forbidden."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    lifecycle.raise_file_limit()
    assert asked == ([] if then is None else [(then, hard)])


async def test_a_reader_of_an_earlier_daemon_gets_the_whole_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event numbers of one life never continue another's."""
    parts: Any = SimpleNamespace(host="spark", runtime=SimpleNamespace(name="podman"), simulated=False)
    fact = Notice(level=Level.INFO, code="c", text="t")
    lives = []
    for now in (1000.0, 1001.0):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        lives.append(Bus(build._first_snapshot(parts, "http://127.0.0.1:1"), time.time))
    last = lives[0].publish(fact).seq
    lives[1].publish(fact)
    lives[1].publish(fact)
    assert await anext(aiter(lives[1].subscribe(last))) == lives[1].snapshot
