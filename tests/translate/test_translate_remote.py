"""Services elsewhere, and who answers when a profile cannot."""

from types import SimpleNamespace
from typing import Any

import pytest
from chats import delta
from scripted import streaming

from sparkdash.catalog import Catalog
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.errors import AdmissionError, EngineError, HostError, SparkdashError, UpstreamError
from sparkdash.gateway.http.exchange import BodyBudget
from sparkdash.gateway.protocol import problems
from sparkdash.gateway.protocol.peek import PeekedBody
from sparkdash.gateway.protocol.route import find_route
from sparkdash.gateway.relay import fallbacks
from sparkdash.gateway.relay.admitted import RequestContext, remote_refusal
from sparkdash.keyring import Key
from sparkdash.settings import Policy, Settings
from sparkdash.supervisor.leasing import Leasing, remote_headers
from sparkdash.supervisor.state.clock import SystemClock

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT = "/v1/chat/completions"
TURNS = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}


async def test_it_is_asked_with_its_own_key_and_name_and_nothing_of_the_client(box: Any) -> None:
    """At once, without an engine, a swap or a look at whether it is there."""
    box.engine.answers(200, {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    headers = {"authorization": "Bearer mine", "x-project": "secret-plans", "user-agent": "my-editor"}
    answer = await box.client.post(CHAT, json=TURNS | {"model": "far"}, headers=headers)
    assert answer.status_code == 200
    assert "x-sparkdash-fallback" not in answer.headers
    head = box.engine.heads[-1].lower()
    assert f"authorization: bearer {box.key}" in head
    assert not any(word in head for word in ("mine", "secret-plans", "my-editor"))
    assert box.engine.asked[-1]["model"] == "org/model"
    row = await box.newest()
    assert (row.profile, row.prompt_tokens) == ("far", 3)
    assert "far" not in box.house.bus.snapshot.engines


async def test_a_wrong_key_is_told_as_the_owners_and_is_never_repeated(box: Any) -> None:
    """A 401 passed on would send people to look at the key that they have for us."""
    box.engine.answers(401, {"error": {"message": f"Incorrect API key provided: {box.key}"}})
    answer = await box.client.post(CHAT, json=TURNS | {"model": "far"})
    assert answer.status_code == 400
    told = answer.json()["error"]
    assert told["code"] == "remote_refused_key"
    assert "TEST_FAR_KEY" in told["message"]
    assert box.key not in answer.text
    assert box.key not in box.house.bus.snapshot.model_dump_json()


async def test_a_key_that_the_daemon_lacks_is_named(box: Any) -> None:
    answer = await box.client.post(CHAT, json=TURNS | {"model": "far/unset"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "key_missing")
    assert "TEST_NO_KEY" in answer.json()["error"]["message"]


@pytest.mark.parametrize("status", [402, 404, 429, 500, 503])
async def test_without_a_fallback_its_answer_is_passed_on(box: Any, status: int) -> None:
    body = {"error": {"message": "no"}}
    box.engine.answers(status, body)
    answer = await box.client.post(CHAT, json=TURNS | {"model": "far"})
    assert (answer.status_code, answer.json()) == (status, body)


@pytest.mark.parametrize("status", [401, 402, 404, 429, 500])
async def test_with_one_another_profile_answers_and_says_so(box: Any, status: int) -> None:
    """`far/unset` has no key and `nobody` is no profile: both are passed over."""
    box.engine.answers(status, {"error": {"message": "no"}})
    answer = await box.client.post(CHAT, json=TURNS | {"model": "far/safe"})
    assert answer.status_code == 200, answer.text
    code = "remote_refused_key" if status == 401 else "remote_refused"
    told = (answer.headers["x-sparkdash-profile"], answer.headers["x-sparkdash-fallback"])
    assert told == ("m", f"far/safe; {code}")
    assert (await box.newest()).profile == "m"


async def test_what_the_request_did_wrong_is_no_reason(box: Any) -> None:
    box.engine.answers(400, {"error": {"message": "bad temperature"}})
    answer = await box.client.post(CHAT, json=TURNS | {"model": "far/safe"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "bad temperature")


async def test_a_fallback_is_told_once_and_not_with_each_request(box: Any) -> None:
    for _ in range(3):
        answer = await box.client.post(CHAT, json=TURNS | {"model": "far/nowhere"})
        assert answer.headers["x-sparkdash-profile"] == "m"
    notices = box.house.bus.snapshot.notices
    assert [one.code for one in notices if one.profile == "far/nowhere"] == ["fallback"]


async def test_an_engine_that_does_not_come_up_has_them_too(box: Any) -> None:
    """The profile's own list in its order; those of a fallback (`far/safe` has `m`) are not followed."""
    box.engine.answers(500, {"error": {"message": "no"}})
    answer = await box.client.post(CHAT, json=TURNS | {"model": "down"})
    told = answer.json()["error"]
    assert answer.status_code == 503
    assert told["code"] == "engine_unreachable"
    assert "Nor can far/safe: " in told["message"]


async def test_an_answer_that_has_begun_is_nobody_elses(box: Any) -> None:
    box.engine.script = streaming(delta({"content": "one"}), dies=True)
    answer = await box.client.post(CHAT, json=TURNS | {"model": "far/safe", "stream": True})
    assert "remote_died" in answer.text
    assert "simulated" not in answer.text
    assert "x-sparkdash-fallback" not in answer.headers


async def test_all_in_vain_says_why_each(box: Any) -> None:
    answer = await box.client.post(CHAT, json=TURNS | {"model": "far/vain"})
    told = answer.json()["error"]
    assert (answer.status_code, told["code"]) == (502, "remote_unreachable")
    assert "Nor can far/unset: " in told["message"]


async def test_numbers_of_another_model_are_no_answer(box: Any) -> None:
    answer = await box.client.post("/v1/embeddings", json={"model": "far/nowhere", "input": "hi"})
    assert answer.json()["error"]["code"] == "remote_unreachable"


async def test_nobody_starts_or_stops_it(box: Any) -> None:
    """And lists say that it answers at once."""
    for route in ("use", "stop"):
        answer = await box.client.post(f"/api/{route}", json={"profile": "far"})
        assert answer.json()["error"]["code"] == "not_managed", route
    models = (await box.client.get("/v1/models")).json()["data"]
    assert next(one for one in models if one["id"] == "far")["status"] == {"value": "loaded"}


@pytest.mark.parametrize("key", ["sk-\u2026abc", "sk-1\nX-Evil: 1", "sk-1\x7f"])
async def test_a_key_that_no_header_takes_is_named_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pasted with a word processor's dots, or two lines of a file."""
    monkeypatch.setenv("FAR", key)
    far = Profile(name="far", engine=EngineKind.REMOTE, url="https://far.example/v1", key_env="FAR")
    with pytest.raises(HostError, match="in FAR holds a character") as caught:
        remote_headers(far)
    assert "sk-" not in caught.value.text()


async def test_a_retry_after_beyond_all_numbers_is_a_day() -> None:
    """A service's own headers fail no request of ours."""
    far = Profile(name="far", engine=EngineKind.REMOTE, url="https://far.example/v1")
    told = remote_refusal(far, 429, b"slow down", {}, "9" * 400)
    assert dict(problems.error_headers(told))[b"retry-after"] == b"86400"


async def test_the_owners_limit_holds() -> None:
    tools: Any = SimpleNamespace(settings=Settings(policy={"far": Policy(max_concurrency=1)}), clock=SystemClock())
    nobody: Any = None
    leasing = Leasing(tools, dict, nobody, arrive=nobody, leave=nobody)
    far = Profile(name="far", engine=EngineKind.REMOTE, url="https://far.example/v1")

    def lease() -> Any:
        return leasing.remote_lease(far, "r", print)

    async with lease() as first:
        assert (first.headers, first.names) == ({}, ("far",))
        with pytest.raises(AdmissionError, match="far") as caught:
            async with lease():
                pass
        assert caught.value.code == "too_many_requests"
        tools.settings = Settings()  # the owner edits the file, which says that it holds at once
        async with lease():
            pass
    async with lease():
        pass


@pytest.mark.parametrize(("error", "expected"), [
    (EngineError("x", code="out_of_memory"), True), (EngineError("x", code="cut"), False),
    (UpstreamError("x", code="cut"), False), (HostError("x", code="image_missing"), True), (UpstreamError("x"), True),
    (AdmissionError("x", code="does_not_fit"), True), (AdmissionError("x", code="stopped"), False),
    (AdmissionError("x", code="cancelled"), False), (AdmissionError("x", code="request_cancelled"), False),
    (AdmissionError("x", code="too_many_requests"), False),
])  # fmt: skip
async def test_for_which_failures_another_stands_in(error: SparkdashError, expected: bool) -> None:
    assert fallbacks.allows_fallback(error) is expected


async def test_a_key_never_gets_a_fallback_that_it_may_not_use(box: Any) -> None:
    a = Profile(name="a", engine=EngineKind.VLLM, fallbacks=("b", "c", "a", "c"))
    catalog = Catalog({name: a.model_copy(update={"name": name}) for name in "abc"})
    key = Key(name="k", sha256="0" * 64, created_at=0.0, models=("a", "c"))
    deps: Any = SimpleNamespace(catalog=lambda: catalog, bus=box.house.bus)
    route = find_route(CHAT)
    assert route is not None

    def others(key: Key | None) -> list[str]:
        exchange: Any = SimpleNamespace(key=key)
        want = RequestContext(
            deps, exchange, route, BodyBudget(1).share(), PeekedBody("a"), "a", catalog.find("a"), batch=False
        )
        return fallbacks.fallback_names(want)

    assert others(key) == ["c"]
    assert others(None) == ["b", "c"]
