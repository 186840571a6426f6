"""The pure parts: what is read from a body, what is changed in it, what a path and a header mean."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkdash.errors import AdmissionError, EngineError, HostError, SparkdashError, UpstreamError
from sparkdash.gateway.http.headers import headers_for_client
from sparkdash.gateway.protocol.peek import PeekedBody, peek_body
from sparkdash.gateway.protocol.prepare import Edits, rewrite_body
from sparkdash.gateway.protocol.problems import client_status, error_body, is_permanent, stream_error_body
from sparkdash.gateway.protocol.route import Dialect
from sparkdash.gateway.relay.request_row import client_name

JSON = "application/json"
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
OBJECTS: Any = st.dictionaries(st.text(max_size=8), VALUES, max_size=6)


@given(OBJECTS, st.text(min_size=1, max_size=30), st.booleans(), st.sampled_from([None, 1]), st.booleans())
def test_peek_and_rewrite_agree_with_a_json_parser(
    rest: dict[str, Any], model: str, stream: bool, indent: int | None, ascii_only: bool
) -> None:
    """Any object, any spelling: the model is found, its replacement changes that value and no other."""
    value = {**rest, "model": model, "stream": stream}
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    asked = peek_body(body, JSON)
    assert (asked.model, asked.stream) == (model, stream)
    changed = rewrite_body(body, Edits({"model": "engine/name"}, {"temperature": 0.5, "model": "never"}))
    assert json.loads(changed) == {"temperature": 0.5, **value, "model": "engine/name"}
    assert rewrite_body(body, Edits()) is body
    assert rewrite_body(body, Edits(fill={"model": "never"}, drop=frozenset({"long\tabsent"}))) is body


@given(OBJECTS, OBJECTS, OBJECTS, st.sets(st.sampled_from(["a", "b", "c", ""])), st.sampled_from([None, 1]))
def test_edits_change_what_they_name_and_no_other_byte(
    body: dict[str, Any], put: dict[str, Any], fill: dict[str, Any], drop: set[str], indent: int | None
) -> None:
    """Members are set, filled in and left out as a dict would have it, objects laid over objects; the others keep their order."""
    written = json.dumps(body, indent=indent, ensure_ascii=False).encode()
    changed = json.loads(rewrite_body(written, Edits(put, fill, frozenset(drop))))
    kept = {key: value for key, value in body.items() if key not in drop}
    both = {key for key in kept.keys() & put.keys() if isinstance(kept[key], dict) and isinstance(put[key], dict)}
    assert changed == {**fill, **kept, **put, **{key: {**kept[key], **put[key]} for key in both}}
    assert [key for key in changed if key in kept] == list(kept)


@pytest.mark.parametrize(("body", "edits", "expected"), [
    (b'{ "a" : 1 , "b":2,\n"c": 3 }', Edits({"b": 9}), b'{ "a" : 1 , "b":9,\n"c": 3 }'),
    (b'{ "a" : 1 , "b":2,\n"c": 3 }', Edits(drop=frozenset("b")), b'{ "a" : 1 , "c": 3 }'),
    (b'{ "a" : 1 , "b":2,\n"c": 3 }', Edits(drop=frozenset("c")), b'{ "a" : 1 , "b":2 }'),
    (b'{ "a" : 1 , "b":2,\n"c": 3 }', Edits({"d": 4}, drop=frozenset("abc")), b'{ "d":4 }'),
    (b'{"a":1,"a":2}', Edits({"a": 3}), b'{"a":3,"a":3}'), (b"{ }", Edits({"a": [1]}), b'{"a":[1] }'),
])  # fmt: skip
def test_edits_leave_the_clients_spelling(body: bytes, edits: Edits, expected: bytes) -> None:
    """White space and order are the client's, so that its prompt hits the prefix cache."""
    assert rewrite_body(body, edits) == expected


def test_a_body_of_very_many_keys_is_refused_before_they_are_read() -> None:
    """Read one by one, 300,000 of them held the loop for seconds."""
    with pytest.raises(ValueError, match="more than 1000 keys"):
        rewrite_body(b'{"model":"m",' + b'"a":1,' * 300_000 + b'"b":1}', Edits({"model": "x"}))


@pytest.mark.parametrize("body", [
    b'{"model":"m","stream":true,"messages":["\\ud83d"]}', b'\xef\xbb\xbf{"model":"m","stream":true}',
    b'  {"model":"m","stream":true}\r\n', b'{"model":"x","stream":true,"model":"m"}',
])  # fmt: skip
def test_odd_bodies_that_engines_take_are_read(body: bytes) -> None:
    """A cut emoji, a byte order mark, white space, a key twice (the last counts)."""
    assert peek_body(body, JSON + "; charset=utf-8") == PeekedBody("m", stream=True)
    assert json.loads(rewrite_body(body, Edits({"model": "n"}, {"k": 1})).decode("utf-8-sig"))["model"] == "n"


def test_curl_need_not_say_that_it_sends_json() -> None:
    """`curl -d` calls everything a form."""
    assert peek_body(b'{"model":"m"}', "application/x-www-form-urlencoded").model == "m"


@pytest.mark.parametrize("stream", ["1", "null", '"true"', "[]"])
def test_only_true_streams(stream: str) -> None:
    """Any other value than a JSON true is for the engine to judge."""
    assert not peek_body(b'{"model":"m","stream":%b}' % stream.encode(), JSON).stream


@pytest.mark.parametrize("kind", ["application/octet-stream", "audio/wav", "image/png"])
def test_other_kinds_of_bodies_are_not_looked_into(kind: str) -> None:
    """Such a body names no model; a route that needs one says so."""
    assert peek_body(b"{broken", kind) == PeekedBody()


@given(st.binary(max_size=200), st.sampled_from([JSON, "", "multipart/form-data; boundary=b0", "text/plain"]))
def test_no_body_breaks_the_gateway(body: bytes, kind: str) -> None:
    try:
        peek_body(body, kind)
    except AdmissionError as error:
        assert error.status == 400  # noqa: PT017 - either way is right


@pytest.mark.parametrize(("types", "boxed"), [
    ((b"application/json",), False), ((b"Application/JSON; charset=utf-8",), False),
    ((b"text/event-stream; charset=utf-8",), False), ((b"text/html",), True), ((b"image/svg+xml",), True),
    ((b"application/json", b"text/html"), True), ((b"",), True), ((), True),
])  # fmt: skip
def test_an_answer_that_a_browser_may_take_for_a_page_gets_an_origin_of_its_own(
    types: tuple[bytes, ...], boxed: bool
) -> None:
    """A browser guesses where no type is named, and may believe the second of two."""
    sent = [(b"content-security-policy", b"default-src *"), *((b"content-type", each) for each in types)]
    policies = [value for name, value in headers_for_client(sent, stream=False) if name == b"content-security-policy"]
    assert policies[0] == b"default-src *"  # a browser obeys both
    assert [policy.split()[0] for policy in policies[1:]] == [b"sandbox"] * boxed
    assert not any(b"allow-same-origin" in policy for policy in policies)


@pytest.mark.parametrize(("agent", "name"), [
    ("AsyncOpenAI/Python 3.52.0", "openai-python"), ("OpenAI/JS 6.49.0", "openai-js"),
    ("claude-cli/2.1.329 (external, sdk-cli)", "claude-code"),
    ("codex_exec/0.169.0 (Debian 12.0.0; x86_64)", "codex"),
    ("opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14", "opencode"),
    ("ai-sdk/openai-compatible/3.0.37 runtime/bun/1.3.13", "ai-sdk"), ("Python/3.12 aiohttp/3.14.5", "aiohttp"),
    ("curl/8.5.0", "curl"),
    ("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0", "browser"),
    ("", "unknown"), ("\x1b[31m192.168.0.7", "unknown"),
])  # fmt: skip
def test_client_names(agent: str, name: str) -> None:
    """Short, known, and never an address or a control character."""
    assert client_name(agent).removesuffix("/8.5.0") == name


@pytest.mark.parametrize(("error", "permanent"), [
    (EngineError("x"), True), (HostError("x", status=502), True), (HostError("x", retry_after=60), False),
    (HostError("x", code="remote_refused", status=402), True),
    (HostError("x", code="remote_refused", status=429), False),
    (HostError("x", code="remote_refused", status=500), False), (AdmissionError("x"), True),
    (AdmissionError("x", retry_after=3), False), (UpstreamError("x"), False), (SparkdashError("x"), False),
])  # fmt: skip
def test_only_what_would_fail_again_tells_agents_to_stop(error: SparkdashError, permanent: bool) -> None:
    """A failed load is posted again 5 to 20 times by agents unless it says invalid_request_error."""
    assert is_permanent(error) is permanent
    told = stream_error_body(error, Dialect.CHAT)["error"]
    assert (told["code"] == "invalid_request_error") is permanent
    assert error_body(error)["error"]["code"] == error.code
    assert (client_status(error) < 500) is (permanent or error.status < 500)


@pytest.mark.parametrize(("named", "session"), [
    ({"X-Session-ID": "s-1"}, "s-1"),
    ({"X-Claude-Code-Session-Id": "0f8e2c0a-7a38-4b43-9a4e-6b7f0f6a3d11"}, "0f8e2c0a-7a38-4b43-9a4e-6b7f0f6a3d11"),
    ({"session-id": "019c-new"}, "019c-new"), ({"session_id": "019c-old"}, "019c-old"),
    ({"x-session-affinity": "ses_1"}, "ses_1"), ({"X-Session-ID": "a b\tc"}, None),
    ({"X-Session-ID": "x" * 81}, None), ({}, None),
])  # fmt: skip
async def test_a_request_has_the_session_of_its_clients_headers(
    house: Any, named: dict[str, str], session: str | None
) -> None:
    """A value that is no plain word is none."""
    body = {"model": "alpha", "messages": []}
    await house.client.post("/v1/chat/completions", json=body, headers=named)
    one = await house.ended()
    assert one.session == session
