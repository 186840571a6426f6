"""Requests and answers cross the gateway unchanged, or are refused in words that clients understand."""

import gc
import gzip
import json
from typing import Any

import pytest
from scripted import answering, streaming

from sparkdash.domain.request import RequestState, Task
from sparkdash.gateway.relay.reply import Reply
from sparkdash.settings import Settings


@pytest.mark.parametrize("body", [
    b'{ "model" :"alpha",  "messages":[ ], "x_unknown": 1e3, "u":"\\ud83d\xc3\xa9" }\n',
    b'{"model":"alpha","messages":["%b"]}' % (b"x" * 3_000_000),
], ids=["odd", "large"])  # fmt: skip
async def test_a_body_crosses_byte_for_byte(house: Any, body: bytes) -> None:
    """Also one above 1 MiB, which is written in pieces."""
    reply = await house.client.post(CHAT, content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 200
    assert house.engine.seen[0].body == body


async def test_each_answer_on_one_connection_has_its_own_length_and_headers(house: Any) -> None:
    answers = [(b'{"ok":true}', "1"), (b"{}", "1"), (b"{}", "2"), (b'{"ok":true}', "1")]

    async def script(_seen: Any, wire: Any) -> None:
        body, told = answers[len(house.engine.seen) - 1]
        await wire.answer(body, x_engine=told, access_control_allow_origin="*")

    house.engine.script = script
    for body, told in answers:
        reply = await house.chat()
        assert (reply.content, reply.headers["x-engine"]) == (body, told)
        assert reply.headers["content-length"] == str(len(body))
        assert "access-control-allow-origin" not in reply.headers
    assert house.engine.connections == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answered_request_leaves_nothing_to_the_collector(house: Any, stream: bool) -> None:
    """Garbage costs memory until the collector comes round, and the collector's looks cost processor time."""
    house.engine.script = streaming(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: [DONE]\n\n')
    if not stream:
        house.engine.script = answering(b'{"choices":[]}')
    gc.collect()
    earlier = [each for each in gc.get_objects() if type(each) is Reply]  # held by errors of earlier tests
    gc.disable()
    try:
        for _ in range(3):
            assert (await house.chat(stream=stream)).status_code == 200
        house.supervisor.asks.clear()  # they name the reply, whose progress a supervisor looks at
        assert len([each for each in gc.get_objects() if type(each) is Reply]) == len(earlier)
    finally:
        gc.enable()


async def test_keys_and_hop_by_hop_headers_end_at_the_gateway(house: Any) -> None:
    """Headers that a Connection header names end too, in both directions."""
    house.engine.script = answering(b"{}", connection="X-Mine", x_mine="1", x_own="1")
    house.supervisor.headers = {"Authorization": "Bearer engine-key"}
    sent = [
        ("authorization", "Bearer mine"),
        ("x-api-key", "mine"),
        ("cookie", "a=b"),
        ("connection", "x-other, X-Hop"),
        ("connection", "keep-alive"),
        ("x-hop", "1"),
        ("x-session-affinity", "s1"),
    ]
    reply = await house.client.post(CHAT, json={"model": "alpha"}, headers=sent)
    assert ("x-mine" in reply.headers, reply.headers["x-own"]) == (False, "1")
    got = house.engine.seen[0].headers
    assert got["authorization"] == "Bearer engine-key"
    assert got["x-session-affinity"] == "s1"
    assert not {"x-api-key", "cookie", "x-hop"} & got.keys()
    assert got["accept-encoding"] == "identity"


CHAT = "/v1/chat/completions"
WAYS = [
    # path -> as the engine knows it, the task of a model that it asks for, is its answer work of the engine?
    ("POST", CHAT, CHAT, Task.GENERATE, True),
    ("POST", "/chat/completions", CHAT, Task.GENERATE, True),
    ("POST", "/v1/v1/chat/completions", CHAT, Task.GENERATE, True),
    ("POST", "/v1//chat/completions?a=//", f"{CHAT}?a=//", Task.GENERATE, True),
    ("POST", "/v1/embeddings/", "/v1/embeddings", Task.EMBED, True),
    ("POST", "/embeddings", "/v1/embeddings", Task.EMBED, True),
    ("POST", "/v1/messages?beta=true", "/v1/messages?beta=true", Task.GENERATE, True),
    ("POST", "/v1/messages/count_tokens", "/v1/messages/count_tokens", Task.GENERATE, False),
    ("POST", "/tokenize", "/tokenize", None, False),
    ("POST", "/v2/rerank", "/v2/rerank", Task.RERANK, True),
    ("POST", "/v1/audio/transcriptions", "/v1/audio/transcriptions", Task.TRANSCRIBE, True),
    ("POST", "/v1/some/thing%2Fnew?a=%20b", "/v1/some/thing%2Fnew?a=%20b", None, True),
    ("POST", "/upstream/alpha/v1/chat/completions", CHAT, None, True),
    ("POST", "/upstream/alpha/v1/pooling", "/v1/pooling", None, True),
    ("POST", "/upstream/alpha/tokenize", "/tokenize", None, False),
    ("GET", "/upstream/alpha/metrics", "/metrics", None, False),
]


@pytest.mark.parametrize(("method", "path", "target", "task", "shows_work"), WAYS)
async def test_a_path_says_what_the_engine_is_asked_and_what_it_is_asked_for(
    house: Any, method: str, path: str, target: str, task: Task | None, shows_work: bool
) -> None:
    """So that `auto` is one that does this. A stuck engine's server still counts tokens and shows metrics, which is no work."""
    said = {"json": {"model": "alpha", "messages": []}} if method == "POST" else {}
    house.engine.script = answering(b"{}")
    reply = await house.client.request(method, path, headers={"user-agent": "aider/1.0"}, **said)
    assert (reply.status_code, house.engine.seen[0].target) == (200, target)
    asked = house.supervisor.asks[0]
    assert (asked["task"], asked["client"]) == (task, "aider/1.0")
    progress = asked["progress"]
    assert (progress is not None and progress.heard_at is not None) is shows_work
    assert progress is None or progress.is_held_up is False


@pytest.mark.parametrize(
    "path",
    ["/api/v1/models", "/metrics", "/sleep", "/v1/../sleep", "/v1/%2e%2e/sleep", "/nope", "/v1x", "/v1", "/v1/a\\b"],
)
async def test_an_unknown_path_is_a_json_404(house: Any, path: str) -> None:
    """Clients that probe for other servers get a 404 with an error object, and no engine hears of it."""
    reply = await house.raw("GET", path)
    assert reply.status_code == 404
    assert isinstance(reply.json()["error"]["message"], str)
    assert house.engine.seen == []


async def test_a_base_url_may_end_with_a_slash(house: Any) -> None:
    asked = ("//v1/models", "//api//tags", "//models/alpha/", "//v1//load_lora_adapter", "//sleep")
    found = [await house.raw("GET", path) for path in asked]
    assert [reply.status_code for reply in found] == [200, 200, 200, 404, 404]
    assert (await house.raw("GET", "/upstream/alpha//health")).status_code == 200
    assert [seen.target for seen in house.engine.seen] == ["//health"]


@pytest.mark.parametrize("path", ["/health", "/", "/api/hello", "/ping", "/v1/health"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_the_gateway_says_that_it_is_up(house: Any, path: str, method: str) -> None:
    reply = await house.client.request(method, path)
    assert reply.status_code == 200
    told = b"Ollama is running" if path == "/" else b'{"status":"ok"}'
    assert reply.content == (b"" if method == "HEAD" else told)
    assert house.supervisor.leases == []


async def test_a_get_without_a_model_goes_to_what_runs(house: Any) -> None:
    await house.client.get("/v1/responses/resp_1")
    await house.client.delete("/v1/responses/resp_1")
    await house.client.post("/tokenize", json={"prompt": "x"})
    assert house.supervisor.leases == ["auto"] * 3
    assert house.engine.seen[2].body == b'{"prompt":"x"}'


async def test_head_has_no_body(house: Any) -> None:
    async def script(seen: Any, wire: Any) -> None:
        assert seen.method == "HEAD"
        await wire.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")

    house.engine.script = script
    reply = await house.client.head("/v1/files/x")
    assert (reply.status_code, reply.headers["content-length"], reply.content) == (200, "5", b"")


async def test_a_refusal_is_no_work_of_the_engine(house: Any) -> None:
    """A stuck engine's server goes on refusing what is wrong; it does so without the engine."""
    house.engine.script = answering(b'{"error": {"message": "no such route"}}', status=404)
    reply = await house.chat()
    assert reply.status_code == 404
    assert house.supervisor.asks[0]["progress"].heard_at is None


async def test_auto_is_replaced_by_a_name_the_engine_knows(house: Any) -> None:
    """An alias that it knows is left alone."""
    body = b'{"messages":[{"content":"\\u00e9  model"}], "model" : "auto","n":1}'
    for content in (body, b'{"model":"coder"}'):
        await house.client.post(CHAT, content=content)
    assert [seen.body for seen in house.engine.seen] == [body.replace(b'"auto"', b'"alpha"'), b'{"model":"coder"}']


@pytest.mark.parametrize(("content", "code"), [
    (b'{"model": "alpha"', "invalid_json"), (b"[1,2]", "invalid_json"), (b"{}", "model_missing"),
    (b"", "model_missing"), (b'{"model": 7}', "invalid_model"),
    (b'{"model": "' + b"x" * 600 + b'"}', "invalid_model"),
])  # fmt: skip
async def test_a_bad_body_is_a_400_in_openais_shape(house: Any, content: bytes, code: str) -> None:
    reply = await house.client.post(CHAT, content=content, headers={"content-type": "application/json"})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["code"], error["type"], error["src"]) == (code, "invalid_request_error", "sparkdash")
    assert house.supervisor.leases == []


async def test_an_unknown_model_is_a_404_with_the_nearest_names(house: Any) -> None:
    """SDKs raise NotFoundError on it and nobody retries."""
    reply = await house.client.post(CHAT, json={"model": "alphq"})
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert "Did you mean alpha?" in error["message"]
    assert (await house.ended()).error == "model_not_found"


async def test_a_compressed_body_is_refused_in_plain_words(house: Any) -> None:
    plain = json.dumps({"model": "alpha", "messages": []}).encode()
    coded = {"content-type": "application/json", "content-encoding": "gzip"}
    refused = await house.client.post(CHAT, content=gzip.compress(plain), headers=coded)
    assert (refused.status_code, refused.headers["accept-encoding"]) == (415, "identity")
    error = refused.json()["error"]
    assert error["code"] == "body_encoded"
    assert error["message"] == (
        "The request's body is compressed (gzip), which sparkdash does not read. Send it plain, without Content-Encoding."
    )
    anthropic = await house.client.post("/v1/messages", content=gzip.compress(plain), headers=coded)
    assert (anthropic.status_code, anthropic.json()["type"]) == (415, "error")
    assert house.engine.seen == []
    same = await house.client.post(CHAT, content=plain, headers={**coded, "content-encoding": "identity"})
    assert same.status_code == 200


async def test_a_body_above_the_limit_is_a_413(house: Any) -> None:
    house.rebuild(settings=Settings(body_limit_mib=1))

    async def pieces() -> Any:
        for _ in range(20):
            yield b"x" * 100_000

    declared = await house.client.post(CHAT, content=b"x" * 1_100_000)
    chunked = await house.client.post(CHAT, content=pieces())
    assert [declared.status_code, chunked.status_code] == [413, 413]
    assert declared.json()["error"]["code"] == "body_too_large"
    assert house.engine.seen == []


@pytest.mark.parametrize(("headers", "code"), [
    ({"host": "evil.example"}, "host_refused"), ({"host": "127.0.0.1.evil.example:8484"}, "host_refused"),
    ({"origin": "https://evil.example"}, "origin_refused"), ({"origin": "null"}, "origin_refused"),
    ({"origin": "chrome-extension://x"}, "origin_refused"), ({"origin": "file://"}, "origin_refused"),
    ({"origin": "http://localhost.evil.example"}, "origin_refused"),
    ({"origin": "http://x.localhost"}, "origin_refused"),
])  # fmt: skip
async def test_web_pages_cannot_reach_the_gateway(house: Any, headers: dict[str, str], code: str) -> None:
    for path in ("/v1/models", "/api/state", "/health", "/v1/chat/completions"):
        reply = await house.client.get(path, headers=headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, code)
        assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize(
    "headers",
    [{"host": "localhost:9"}, {"host": "[::1]:9"}, {"host": "127.0.0.1"}, {"origin": "http://localhost:3000"}],
)
async def test_this_boxs_own_names_are_welcome(house: Any, headers: dict[str, str]) -> None:
    assert (await house.client.get("/v1/models", headers=headers)).status_code == 200


async def test_a_row_tells_the_requests_life(house: Any, recorded_body: Any) -> None:
    recorded = recorded_body("vllm-0.32.0-base-chat")

    house.engine.script = answering(recorded)
    agent = {"user-agent": "claude-cli/2.1.329 (external, cli)"}
    await house.client.post(CHAT, json={"model": "coder"}, headers=agent)
    row = await house.ended()
    assert (row.client, row.profile, row.route) == ("claude-code", "alpha", "/v1/chat/completions")
    assert (row.state, row.status, row.finish_reason) == (RequestState.DONE, 200, "length")
    assert (row.prompt_tokens, row.completion_tokens) == (17, 80)
    assert (row.ttft_s, row.decode_tok_s, row.internal) == (None, None, False)
    assert house.recorded == [row]


@pytest.mark.parametrize(("container", "node"), [("sparkdash-alpha", "spark2"), (None, None)])
async def test_a_row_tells_the_node_that_serves(house: Any, container: str | None, node: str | None) -> None:
    """The head's of several; a server that sparkdash did not start may be anywhere."""
    house.supervisor.container, house.supervisor.nodes = container, ("spark2", "local")
    await house.client.post(CHAT, json={"model": "alpha"})
    assert (await house.ended()).node == node


async def test_the_demos_own_traffic_is_marked(house: Any) -> None:
    await house.client.post(CHAT, json={"model": "alpha"}, headers={"user-agent": "sparkdash-demo/codex"})
    row = await house.ended()
    assert (row.client, row.internal) == ("codex", True)


@pytest.mark.parametrize("name", ["\\ud83d", "модель", "x\\u0000y"])
async def test_an_odd_model_name_is_an_unknown_model(house: Any, name: str) -> None:
    reply = await house.client.post(CHAT, content=f'{{"model":"{name}"}}'.encode())
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "model_not_found"
    assert house.bus.snapshot.model_dump_json()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error":{"message":"no KV left","type":"server_error","code":null}}', "server_error"),
        (b'\n {\n  "error": {"message": "no", "code": "overloaded"}, "user": 1}', "overloaded"),
        (b'{"error": "out of memory"}', "engine_error"),
        (b'{"object":"error","message":"no","type":"BadRequestError","code":400}', "engine_error"),
        (b'{"type":"error","error":{"type":"overloaded_error","message":"no"}}', "overloaded_error"),
        (b'{"error":{"message":"' + b"x" * 200_000 + b'"}}', "engine_error"),
    ],
)
async def test_an_error_under_a_200_is_one(house: Any, body: bytes, error: str) -> None:
    """Some engines answer so: where nothing is generated the client gets every byte, and the books say failed."""

    house.engine.script = answering(body)
    reply = await house.client.post("/v1/embeddings", json={"model": "alpha"})
    assert (reply.status_code, reply.content) == (200, body)
    row = await house.ended()
    assert (row.state, row.status, row.error) == (RequestState.FAILED, 200, error)


@pytest.mark.parametrize(("body", "error"), [
    (b'{"error":null,"choices":[{"message":{"content":"a"}}]}', None), (b'{"error": "", "choices":[]}', None),
    (b'{"choices":[{"message":{"content":"{\\"error\\":{}}"}}]}', None),
    (b'{"data":[{"error":{"message":"of one of many"}}]}', None), (b'\n\n {"id":1}', None), (b" \n", None),
    (b'{"error":{"message":"This model\'s maximum context length is 9 tokens","code":400}}', "engine_error"),
])  # fmt: skip
async def test_an_answer_is_not_taken_for_a_bad_one(house: Any, body: bytes, error: str | None) -> None:
    """The mere word says nothing; blanks may be sent before a body; an error that blames the request is an answer."""
    house.engine.script = answering(body)
    assert (await house.chat()).content == body
    row = await house.ended()
    assert (row.state, row.error) == (RequestState.FAILED if error else RequestState.DONE, error)


async def test_an_engines_odd_word_for_its_error_does_not_break_the_feed(house: Any) -> None:
    house.engine.script = answering(b'{"error":{"code":"\\ud83d","message":"no"}}', 400)
    assert (await house.chat()).status_code == 400
    assert house.bus.snapshot.model_dump_json()
