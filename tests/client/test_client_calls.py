"""AsyncClient and Client against a daemon over real HTTP, and against a newer one."""

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import FakeDaemon, summary

from sparkdash import __version__
from sparkdash.api.control import ControlApi
from sparkdash.api.requests import NoParameters
from sparkdash.api.rows import DocumentCall, EventReader, OtherVersion, read_event
from sparkdash.client import address
from sparkdash.client.address import Address
from sparkdash.client.client import AsyncClient, Client
from sparkdash.client.connection import reading_answer
from sparkdash.domain.container import PullProgress
from sparkdash.domain.event import EVENT, Event, RequestChanged, SampleTaken, Withheld
from sparkdash.domain.metric import EngineSample, Metric, Sample
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.state import DaemonInfo, Snapshot, apply
from sparkdash.domain.swap import Plan
from sparkdash.errors import (
    AdmissionError,
    DaemonError,
    EngineError,
    HostError,
    ProfileError,
    SparkdashError,
    UpstreamError,
)
from sparkdash.redaction import shown_url


@pytest.fixture
def client(daemon: FakeDaemon) -> Iterator[Client]:
    with Client(daemon.url) as made:
        yield made


def test_requests_are_what_the_api_table_says(daemon: FakeDaemon, client: Client) -> None:
    client.use(profile="family/variant")
    client.stop(profile=None)
    client.stop(profile="a")
    client.release(profile="a")
    client.cancel()
    client.cancel_request(request_id="a/b")
    client.toggle(a="a", flip=True)
    client.reload()
    client.shutdown(engines="stop")
    assert daemon.calls == [
        ("POST", "/api/use", {"profile": "family/variant"}),
        ("POST", "/api/stop", {"profile": None}),
        ("POST", "/api/stop", {"profile": "a"}),
        ("POST", "/api/release", {"profile": "a"}),
        ("POST", "/api/cancel", {}),
        ("POST", "/api/requests/a%2Fb/cancel", {}),
        ("POST", "/api/toggle", {"a": "a", "flip": True}),
        ("POST", "/api/reload", {}),
        ("POST", "/api/shutdown", {"engines": "stop"}),
    ]


def test_answers_are_domain_values(daemon: FakeDaemon, client: Client) -> None:
    daemon.plans["f/v"] = Plan(profile="f/v", evict=("a",), needs_bytes=1, fits=True, expected_s=9.5)
    daemon.whole["f/v"] = Profile(name="f/v", engine=EngineKind.SIM)
    daemon.set(profiles=(summary("f/v"),), problems=("x.yaml:3: wrong",))
    assert client.plan(name="f/v") == daemon.plans["f/v"]
    assert client.plan(name="a b?c#d/e").profile == "a b?c#d/e"
    assert client.profile(name="f/v") == daemon.whole["f/v"]
    assert client.profiles().profiles == (summary("f/v"),)
    assert client.profiles().problems == ("x.yaml:3: wrong",)


async def test_the_asynchronous_client_does_the_same(daemon: FakeDaemon) -> None:
    daemon.log_lines = ["eins", "zwei\u2028drei"]
    daemon.pulls = [
        PullProgress(image="i", detail="layer", fraction=0.5),
        PullProgress(image="i", detail="", done=True),
    ]
    async with AsyncClient(daemon.url + "/v1/") as client:
        assert (await client.state()).daemon.host == "spark-1"
        assert (await client.use(profile="a")).profile == "a"
        assert [line async for line in client.logs(name="a", follow=True, tail=5)] == ["eins", "zwei\u2028drei"]
        assert [step async for step in client.pull(profile="a")] == daemon.pulls
    assert ("GET", "/api/logs/a?tail=5&follow=1", None) in daemon.calls
    assert ("POST", "/api/pull-image", {"profile": "a"}) in daemon.calls


FAILURES: list[tuple[int, dict[str, Any], type[SparkdashError], dict[str, Any]]] = [
    (404, {"code": "model_not_found", "hint": "Did you mean a?"}, AdmissionError, {"exit_code": 3, "status": 404}),
    (429, {"code": "queue_full", "retry_after": 7}, AdmissionError, {"retry_after": 7}),
    (422, {"code": "profile_invalid", "problems": ["a:1: b"]}, ProfileError, {"problems": ("a:1: b",)}),
    (503, {"code": "no_progress", "phase": "load", "exit_code": 1, "log_tail": ["x", "y"], "evidence": "/i"}, EngineError,
     {"phase": "load", "container_exit": 1, "log_tail": ("x", "y"), "evidence": "/i"}),
    (503, {"code": "runtime_missing"}, HostError, {"exit_code": 5}),
    (502, {"code": "engine_unreachable"}, UpstreamError, {"exit_code": 6}),
    (503, {"code": "daemon_stopping"}, DaemonError, {"exit_code": 7}),
    (500, {"code": "internal_error"}, SparkdashError, {"exit_code": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("status", "inside", "family", "carries"), FAILURES, ids=lambda v: str(v)[:24])
def test_every_envelope_becomes_the_error_that_it_was(
    daemon: FakeDaemon, client: Client, status: int, inside: dict[str, Any], family: type, carries: dict[str, Any]
) -> None:
    daemon.errors["/api/use"] = (status, {"message": "It did not work.", **inside})
    with pytest.raises(SparkdashError) as caught:
        client.use(profile="a")
    assert type(caught.value) is family
    assert (caught.value.message, caught.value.code) == ("It did not work.", inside["code"])
    assert caught.value.hint == inside.get("hint")
    assert {key: getattr(caught.value, key) for key in carries} == carries


def test_no_daemon_says_how_to_start_one(unused_tcp_port: int) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}"
    with Client(url) as client:
        assert not client.health()
        with pytest.raises(DaemonError, match=f"No sparkdash daemon answers at {url}") as caught:
            client.state()
    assert (caught.value.code, caught.value.exit_code) == ("daemon_unreachable", 7)
    assert "`sparkdash serve`" in (caught.value.hint or "")


def test_something_else_on_the_port_is_named_as_such(daemon: FakeDaemon, client: Client) -> None:
    with pytest.raises(DaemonError) as caught:
        client.call(DocumentCall("GET", "/api/no-such-route", NoParameters, bytes, ""))
    assert caught.value.code == "daemon_version"
    daemon.whole["a"] = summary("a")  # type: ignore[assignment] # what a newer daemon might send
    with pytest.raises(DaemonError, match="is of another version: ") as other:
        client.profile(name="a")
    assert "Restart it" in str(other.value.hint)


def test_the_socket_is_preferred_and_the_variable_wins(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKDASH_PORT", "9999")
    assert str(address.find_daemon()) == "http://127.0.0.1:9999"
    own = FakeDaemon()
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are too long for a socket's name
        monkeypatch.setenv("SPARKDASH_RUNTIME_DIR", folder)
        thread = own.start(Path(folder) / address.SOCKET_NAME)
        with Client() as client:
            assert client.address.uds == Path(folder) / address.SOCKET_NAME
            assert client.state() == own.bus.snapshot
            monkeypatch.setenv("SPARKDASH_URL", f"{daemon.url}/v1")
            with Client() as named:
                assert named.address == address.Address(daemon.url, given=True)
                assert named.health()
        own.end(thread)


async def test_data_for_a_read_that_was_just_cancelled_shows_no_traceback(
    daemon: FakeDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    """anyio has the socket set the result of the cancelled read; every other error of a callback is reported."""
    cancelled = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    async with AsyncClient(daemon.url) as client:
        await client.state()
        asyncio.get_running_loop().call_soon(cancelled.set_result, None)
        asyncio.get_running_loop().call_soon(int, "no number")
        await asyncio.sleep(0)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ValueError]


def test_a_runtime_folder_that_is_closed_to_us_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After `su` or `sudo` it is often the other user's. (Simulated, as nothing is closed to root.)"""
    monkeypatch.setenv("SPARKDASH_RUNTIME_DIR", str(tmp_path))
    look = Path.stat

    def stat(path: Path, **how: bool) -> object:
        if path.parent == tmp_path:
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, **how)

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(DaemonError, match="Permission denied") as caught:
        Client()
    assert caught.value.code == "runtime_dir_closed"
    assert str(tmp_path) in caught.value.message
    assert "XDG_RUNTIME_DIR" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8484", "unix:///x", "http://", "", "http://[::1", "http://h:abc", "http://h:99999", "http://h:0",
     "http://a b:1", "http://h:1/?x", "http://a..b:1", f"http://{'a' * 70}:1", "http://😀.example:8000",
     "http://xn--a.test", "http://ｅｘ.test"],
)  # fmt: skip
def test_an_address_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(DaemonError, match="is not a URL") as caught:
        address.at_url(url)
    assert caught.value.code == "daemon_url_invalid"


def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(DaemonError, match=r"^http://\*\*\*@127\.0\.0\.1:1 contains a password") as login:
        address.at_url("http://me:hunter2@127.0.0.1:1")
    with pytest.raises(DaemonError, match=r"^'http://\*\*\*@h:x' is not a URL") as wrong:
        address.at_url("http://me:hunter2@h:x")
    assert "hunter2" not in f"{login.value} {wrong.value}"
    assert shown_url("http://me:hunter2@and@more@h/v1") == "http://***@h/v1"


def test_proxies_of_the_environment_do_not_count(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert os.environ["HTTP_PROXY"]
    with Client(daemon.url) as client:
        assert client.health()


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
