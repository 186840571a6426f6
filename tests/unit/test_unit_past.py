"""Figures that the daemon hands out of the time before its start, and what it records."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from logs import capture_logs
from recorded import START, asked, sample
from stored import rows, swap

from sparkdash.bus import Bus
from sparkdash.daemon.samples import record_in, record_notices, recording_samples, restore_past
from sparkdash.domain.event import Level, Notice, RequestChanged, SampleTaken
from sparkdash.domain.request import Request
from sparkdash.domain.state import DaemonInfo, Snapshot
from sparkdash.store import Store


def new_bus() -> Bus:
    info = DaemonInfo(version="1", host="h", pid=1, started_at=START, runtime="podman", url="http://h/v1")
    ticks = iter(range(START + 1, START + 1000))
    return Bus(Snapshot(seq=7, at=START, daemon=info), lambda: float(next(ticks)))


async def test_the_first_snapshot_of_a_daemon_has_the_past_and_goes_on_from_there(tmp_path: Path) -> None:
    """Requests, swaps, speeds and notices of its predecessor, before those of its own."""
    path = tmp_path / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        for number in range(3):
            store.record_request(asked(number, START - 100 + number, decode_tok_s=40.0 + number))
        store.record_swap(swap("1", 30), "f")
        store.record_notice(Notice(level=Level.INFO, code="old", text="It was.", at=5.0))
    bus = new_bus()
    async with Store.opened(path, bus.publish) as store:
        bus.publish(Notice(level=Level.INFO, code="new", text="It is."))
        restore_past(bus, store)
    known = bus.snapshot
    assert [one.id for one in known.recent] == ["00000002", "00000001", "00000000"]
    assert [one.target for one in known.swaps] == ["a"]
    assert [notice.code for notice in known.notices] == ["new", "old"]
    assert (known.figures["alpha"].best, known.figures["alpha"].decode_tok_s) == (42.0, 41.0)
    bus.publish(RequestChanged(asked(9, START, decode_tok_s=60.0)))
    assert (bus.snapshot.recent[0].id, bus.snapshot.figures["alpha"].best) == ("00000009", 60.0)


async def test_samples_and_notices_are_recorded_and_the_past_is_not_recorded_again(tmp_path: Path) -> None:
    """Notices from the daemon's start on, also those from before the recording began."""
    path = tmp_path / "sparkdash.db"
    async with Store.opened(path, lambda _: None) as store:
        store.record_notice(Notice(level=Level.INFO, code="old", text="It was.", at=5.0))
    bus = new_bus()
    async with Store.opened(path, bus.publish) as store:
        restore_past(bus, store)
        bus.publish(Notice(level=Level.INFO, code="early", text="It is."))
        record_notices(bus, store)
        publish = recording_samples(bus.publish, store)
        for at in (START, START + 1):
            publish(SampleTaken(sample=sample(at)))
        publish(Notice(level=Level.WARNING, code="late", text="It is, too.", profile="alpha"))
    assert rows(path, "SELECT code, profile FROM notices ORDER BY at") == [
        ("old", None), ("early", None), ("late", "alpha"),
    ]  # fmt: skip
    assert rows(path, "SELECT DISTINCT start FROM history_seconds") == [(START,), (START + 1,)]
    assert cast("Any", bus.snapshot.sample).at == START + 1


def test_a_recorder_that_fails_keeps_a_request_from_no_other() -> None:
    request = asked(1, START)
    told: list[Request] = []

    def broken(_request: Request) -> None:
        raise AttributeError("when")

    with capture_logs() as logs:
        record_in(told.append, broken, told.append)(request)
    assert told == [request, request]
    assert [line["request"] for line in logs] == [request.id]
