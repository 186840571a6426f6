"""A client reads a newer daemon: what was added is ignored, another major version is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkdash import __version__
from sparkdash.api.control import ControlApi
from sparkdash.api.rows import EventReader, OtherVersion, read_event
from sparkdash.client.address import Address
from sparkdash.client.connection import reading_answer
from sparkdash.domain.event import EVENT, Event, RequestChanged, SampleTaken, Withheld
from sparkdash.domain.metric import EngineSample, Metric, Sample
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import DaemonInfo, Snapshot, apply
from sparkdash.errors import DaemonError

DAEMON = DaemonInfo(version=__version__, host="spark-1", pid=1, started_at=1.0, runtime="podman", url="http://x/v1")
REQUEST = Request(id="r1", client="codex", profile="a", route="/v1/x", state=RequestState.PREFILL, started_at=1.0)
SAMPLE = Sample(at=2.0, engines={"a": EngineSample(at=2.0, values={Metric.DECODE: 41.5})})
STATE = Snapshot(seq=1, at=2.0, daemon=DAEMON, requests={"r1": REQUEST}, sample=SAMPLE)


def _newer(state: Snapshot) -> dict[str, Any]:
    told: dict[str, Any] = state.model_dump(mode="json")
    told["weather"] = {"sun": True}
    told["daemon"]["mood"] = "good"
    told["requests"]["r1"]["colour"] = "green"
    told["sample"]["engines"]["a"]["values"]["joy_per_token"] = 3.0
    return told


def test_fields_and_metrics_that_a_newer_daemon_added_are_ignored() -> None:
    assert ControlApi.state.read(json.dumps(_newer(STATE)).encode()) == STATE


def test_the_feed_of_a_newer_daemon_is_followed_past_facts_of_an_unknown_kind() -> None:
    reader: EventReader[Snapshot | Event] = ControlApi.events.reader()  # type: ignore[assignment]
    known = json.loads(EVENT.dump_json(Event(3, 3.0, RequestChanged(REQUEST))))
    known["fact"]["request"]["colour"] = "green"
    events = [{"seq": 2, "at": 2.5, "fact": {"kind": "weather", "sun": True}}, known]
    frames = [("snapshot", _newer(STATE)), *(("fact", event) for event in events)]
    stream = "".join(f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in frames)
    state, unknown, changed = reader.feed(stream.encode())
    assert isinstance(state, Snapshot)
    assert isinstance(unknown, Event)
    assert isinstance(changed, Event)
    assert unknown.fact == Withheld()
    assert apply(apply(state, unknown), changed).requests == {"r1": REQUEST}


def test_a_known_fact_that_cannot_be_read_is_no_unknown_one() -> None:
    event = json.loads(EVENT.dump_json(Event(2, 2.0, SampleTaken(sample=SAMPLE))))
    del event["fact"]["sample"]["at"]
    with pytest.raises(ValueError, match="at"):
        read_event(json.dumps(event))


@pytest.mark.parametrize("readable", [True, False])
def test_another_major_version_is_named_with_what_to_do(readable: bool) -> None:
    told = _newer(STATE)
    told["daemon"]["version"] = "9.4.1"
    if not readable:
        del told["seq"]
    with pytest.raises(OtherVersion):
        ControlApi.state.read(json.dumps(told).encode())
    words = rf"is sparkdash 9\.4\.1, and this is {__version__}"
    with pytest.raises(DaemonError, match=words) as caught, reading_answer(Address("http://spark-1:8484")):
        ControlApi.state.read(json.dumps(told).encode())
    assert caught.value.code == "daemon_version"
    assert "Install the same version" in str(caught.value.hint)
