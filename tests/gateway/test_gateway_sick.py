"""An engine that is dead, broken or silent and still answers: its client gets another engine's answer, or a clear word."""

import asyncio
import gzip
import json
from typing import Any

import pytest
from scripted import Hanging, answering, engine_on_a_socket, streaming

from sparkdash.domain.request import RequestState
from sparkdash.errors import BadAnswerError, EngineDeadError, UpstreamError
from sparkdash.gateway.protocol.problems import overflow_error
from sparkdash.settings import Settings
from sparkdash.sse import Frames

LLAMACPP = (
    b'{"error":{"code":400,"message":"request (6002 tokens) exceeds the available context size (4096 tokens), try '
    b'increasing it","type":"exceed_context_size_error","n_prompt_tokens":6002,"n_ctx":4096}}'
)


def body(message: str) -> bytes:
    """SGLang's and TensorRT-LLM's shape."""
    return json.dumps({"object": "error", "message": message, "type": "BadRequestError", "code": 400}).encode()


OVERFLOWS = {
    LLAMACPP: (6002, 4096),
    body("The input (291793 tokens) is longer than the model's context length (262144 tokens)."): (291793, 262144),
    body(
        "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of "
        "70000 tokens: 6000 tokens from the input messages and 64000 tokens for the completion."
    ): (70000, 32768),
    body("The sum of prompt length (72417.0), query length (0) should not exceed max_num_tokens (69632)"): (
        72417,
        69632,
    ),
    body(
        "The sum of prompt length (4000) and query length (0) max_tokens (2048) should not exceed max_seq_len (4096)"
    ): (6048, 4096),
    body(
        "`default_max_tokens` (-152) must be greater than 0, `default_max_tokens` (-152) = max_seq_len (8192) - "
        "`splited_prompt_len` (8000) - `query_token_len` (344)"
    ): (8344, 8192),
}
"""Engines' words for a prompt that is too long: tokens asked for, and the limit."""
JINJA = b'{"error":{"code":400,"message":"Error: Jinja Exception: System message must be at the beginning."}}'
TURNS = [{"role": role, "content": "x"} for role in ("system", "developer", "user")]


@pytest.mark.parametrize("status", [400, 500])
async def test_a_template_that_refuses_a_second_system_message_gets_one(house: Any, status: int) -> None:
    """The client notices nothing; the engine's next requests are folded at once."""

    async def script(seen: Any, wire: Any) -> None:
        roles = [turn["role"] for turn in json.loads(seen.body)["messages"]]
        await (wire.answer(b'{"choices":[]}') if roles == ["system", "user"] else wire.answer(JINJA, status))

    house.engine.script = script
    for asked in (2, 3):
        reply = await house.client.post("/v1/chat/completions", json={"model": "alpha", "messages": TURNS})
        assert (reply.status_code, len(house.engine.seen)) == (200, asked)
    assert [row.state for row in house.bus.snapshot.recent] == [RequestState.DONE] * 2


async def test_a_refusal_that_folding_does_not_fix_is_the_engines_own(house: Any) -> None:
    house.engine.script = answering(JINJA, 400)
    for turns, asked in ((TURNS, 2), (TURNS, 4), (TURNS[2:], 5)):
        reply = await house.client.post("/v1/chat/completions", json={"model": "alpha", "messages": turns})
        assert (reply.status_code, reply.content, len(house.engine.seen)) == (400, JINJA, asked)


@pytest.mark.parametrize(("status", "words", "said"), [
    (404, '{"detail":"Not Found"}', "'Not Found'"), (501, "[1]", "'[1]'"),
    (501, "No embeddings.", "'No embeddings.'"),
])  # fmt: skip
async def test_a_route_that_the_engine_lacks_is_told_with_who_has_it(
    house: Any, status: int, words: str, said: str
) -> None:
    pools = house.catalog.profiles["beta/fast"].model_copy(update={"args": {"runner": "pooling"}})
    house.catalog.profiles["beta/fast"] = pools
    house.engine.script = answering(words.encode(), status)
    reply = await house.client.post("/v1/embeddings", json={"model": "alpha", "input": "x"})
    told = reply.json()["error"]
    assert (reply.status_code, told["code"], told["hint"]) == (404, "route_not_served", "Use beta/fast.")
    assert f"alpha does not serve /v1/embeddings: its engine says {said}" in told["message"]


async def test_an_engines_404_about_a_model_is_its_own(house: Any) -> None:
    words = b'{"error":{"message":"The model `x` does not exist."}}'
    house.engine.script = answering(words, 404)
    reply = await house.client.post("/v1/embeddings", json={"model": "alpha", "input": "x"})
    assert (reply.status_code, reply.content) == (404, words)


@pytest.mark.parametrize("told", OVERFLOWS, ids=str)
def test_every_engines_words_are_known(told: bytes) -> None:
    asked, limit = OVERFLOWS[told]
    error = overflow_error(told)
    assert error is not None
    assert (error.code, error.status) == ("context_length_exceeded", 400)
    assert error.message.startswith(
        f"This model's maximum context length is {limit} tokens. However, you requested {asked} tokens."
    )


def test_vllms_sentence_is_kept() -> None:
    """The sentence is OpenAI's already; only the code is missing."""
    words = "This model's maximum context length is 512 tokens. However, your request has 900 input tokens."
    error = overflow_error(json.dumps({"error": {"message": words, "code": 400}}).encode())
    assert error is not None
    assert error.message == words


@pytest.mark.parametrize("told", [
    b"", b"not json", b"[1]", b"null", b'{"error":7}', b'{"error":{"message":null}}',
    b'{"error":{"message":"max_tokens=99999 cannot be greater than max_model_len=4096."}}',
])  # fmt: skip
def test_other_refusals_are_the_engines_own(told: bytes) -> None:
    assert overflow_error(told) is None


@pytest.mark.parametrize("stream", [False, True])
async def test_it_has_a_true_status_and_each_protocols_shape(house: Any, stream: bool) -> None:
    """400 with OpenAI's code; Anthropic's type on messages; the row says why."""

    house.engine.script = answering(LLAMACPP, status=400)
    chat = await house.chat(stream=stream)
    told = chat.json()["error"]
    assert (chat.status_code, told["code"], told["type"]) == (400, "context_length_exceeded", "invalid_request_error")
    messages = await house.client.post("/v1/messages", json={"model": "alpha", "stream": stream})
    told = messages.json()
    assert (messages.status_code, told["type"], told["error"]["type"]) == (400, "error", "invalid_request_error")
    await house.until(lambda _: len(house.recorded) >= 2)
    assert {row.error for row in house.recorded} == {"context_length_exceeded"}


STREAM = {"model": "alpha", "stream": True}
WORD = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
PAGE = b"<!DOCTYPE html><html><body>Welcome to nginx!</body></html>"


@pytest.mark.parametrize(
    ("status", "words", "looks", "error"),
    [
        (
            400,
            b'{"error":{"message":"max_tokens=99999 cannot be","code":400,"type":"BadRequestError"}}',
            0,
            "BadRequestError",
        ),
        (404, None, 0, "NotFoundError"),
        (422, b'{"error":{"message":"no such tool"}}', 0, "engine_error"),
        (500, b'{"error":{"code":500,"message":"parse error at line 1","type":"server_error"}}', 1, "server_error"),
    ],
)
async def test_an_error_of_an_engine_that_is_well_passes_unchanged(
    house: Any, recorded_body: Any, status: int, words: bytes | None, looks: int, error: str
) -> None:
    """llama-server answers 500 to bad JSON, so that engine is looked at once; a 4xx is the request's own fault."""
    words = words or recorded_body("vllm-0.32.0-base-err-model")
    house.engine.script = answering(words, status, x_request_id="r1")
    reply = await house.chat()
    assert (reply.status_code, reply.content, reply.headers["x-request-id"]) == (status, words, "r1")
    assert reply.headers["content-length"] == str(len(words))
    assert (len(house.engine.seen), house.supervisor.looks, house.supervisor.unwell) == (1, looks, [])
    row = await house.ended()
    assert (row.state, row.status, row.error) == (RequestState.FAILED, status, error)


async def test_an_error_of_an_engine_that_looks_dead_is_its_death(house: Any, tools: Any) -> None:
    """With any words: /health says 503, or nobody listens any more."""
    async with engine_on_a_socket(answering(b"Internal Server Error", 500, "text/plain")) as dying:
        house.supervisor.urls, house.supervisor.sick = [dying.url], "/health answered 503"
        reply = await house.chat()
    assert (reply.status_code, len(dying.seen), len(house.engine.seen)) == (200, 1, 1)
    (error,) = house.supervisor.unwell
    assert (error.code, "/health answered 503" in error.message) == ("engine_died", True)


@pytest.mark.parametrize(("body", "kind", "found"), [
    (PAGE, "text/html", "Welcome to nginx!"), (b"null", "application/json", "no JSON object: null"),
    (b"", "application/json", "200 with nothing"),
    (b'{"error":{"message":"out of memory","code":500}}', "application/json", "an error: out of memory"),
    (b'{"error": "out of memory"}', "application/json", "an error: out of memory"),
    (b'{"object":"error","message":"worker lost","type":"InternalServerError"}', "application/json", "worker lost"),
    (b"\x1f\x8b\x08\x00rubbish", "application/json", "11 bytes that are no text"),
], ids=["a page", "null", "nothing", "an error", "a bare error", "an old error", "no text"])  # fmt: skip
async def test_a_success_that_is_no_answer_is_a_502(house: Any, body: bytes, kind: str, found: str) -> None:
    """Asked once more, then told with what was found; the supervisor hears of each."""
    house.engine.script = answering(body, content_type=kind)
    reply = await house.chat()
    assert (reply.status_code, len(house.engine.seen)) == (502, 2)
    error = reply.json()["error"]
    assert (error["code"], found in error["message"]) == ("bad_answer", True)
    assert [type(error) for error in house.supervisor.unwell] == [BadAnswerError] * 2
    row = await house.ended()
    assert (row.state, row.status, row.error) == (RequestState.FAILED, 502, "bad_answer")


DEEP = "[" * 100_000
CALL = {"id": "a", "type": "function", "function": {"name": "rd", "arguments": DEEP}}
CALLING = {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [CALL]}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(("status", "content", "path", "expected"), [
    (400, '{"error":' + DEEP, "/v1/chat/completions", 400), (400, '{"error":' + DEEP, "/api/chat", 400),
    (500, '{"error":' + DEEP, "/api/generate", 500), (200, json.dumps(CALLING), "/api/chat", 502),
])  # fmt: skip
async def test_an_answer_that_is_nested_beyond_all_sense_is_the_engines_fault(
    house: Any, status: int, content: str, path: str, expected: int
) -> None:
    """Such as a model that goes on writing brackets."""
    house.engine.script = answering(content.encode(), status)
    said = {"messages": [{"role": "user", "content": "x"}], "prompt": "x"}
    reply = await house.client.post(path, json={"model": "alpha", "stream": False, **said})
    assert (reply.status_code, b"sparkdash itself" in reply.content) == (expected, False), reply.content[:300]


@pytest.mark.parametrize("hangs_up", [False, True])
@pytest.mark.parametrize("before", [b"", WORD])
async def test_an_engine_that_dies_in_a_stream_has_its_last_words_replaced_by_the_reason(
    house: Any, recorded_body: Any, hangs_up: bool, before: bytes
) -> None:
    """The stream ends at once with what the supervisor found out, whether the engine hangs up or not."""
    recorded = recorded_body("vllm-0.32.0-ray-nodedeath-midstream")
    begun, error, words = recorded.partition(b'data: {"error"')
    last = before + error + words
    read = asyncio.Event()

    async def script(_seen: Any, wire: Any) -> None:
        await wire.head()
        await wire.chunk(begun)
        await read.wait()
        if hangs_up:
            await wire.raw(b"%x\r\n%b\r\n0\r\n\r\n" % (len(last), last))
            return
        await wire.chunk(last)
        await wire.client_left()

    house.engine.script = script
    async with house.client.stream("POST", "/v1/chat/completions", json=STREAM) as reply:
        content = b""
        async for piece in reply.aiter_raw():
            read.set()
            content += piece
    assert content.startswith(begun + before)
    told, done = content.removeprefix(begun + before).split(b"\n\n")[:-1]
    error = json.loads(told.removeprefix(b"data: "))["error"]
    assert (error["src"], error["code"], done) == ("sparkdash", "engine_died", b"data: [DONE]")
    assert [type(error) for error in house.supervisor.unwell] == [EngineDeadError]
    row = await house.ended()
    assert (row.state, row.error, row.status) == (RequestState.FAILED, "engine_died", 502)


async def test_a_client_that_hangs_up_at_the_last_words_of_a_dead_engine_has_its_row(
    house: Any, recorded_body: Any
) -> None:
    """The official clients close at an error event: the row says failed, and nobody is answered who has gone."""
    recorded = recorded_body("vllm-0.32.0-ray-nodedeath-midstream")
    house.engine.script = Hanging(recorded[:-150], recorded[-150:])
    async with house.client.stream("POST", "/v1/chat/completions", json=STREAM) as reply:
        async for piece in reply.aiter_raw():
            if b'"error"' in piece:
                break
    row = await house.ended()
    assert (row.state, row.error) == (RequestState.FAILED, "engine_died")


async def test_a_page_that_follows_a_200_for_a_model_list_passes(house: Any) -> None:
    """Only what is to generate is judged: everything else is the engine's and its client's business."""
    house.engine.script = answering(PAGE, content_type="text/html")
    assert (await house.client.post("/tokenize", json={"model": "alpha"})).content == PAGE


def patient(house: Any, name: str) -> None:
    """Give a profile minutes for its first byte, so that a busy machine does not end what is to begin."""
    house.catalog.profiles[name] = house.catalog.profiles[name].model_copy(update={"first_byte_s": 300.0})


class TestLimited:
    """Limits of the box; a profile's own go before them."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(first_byte_s=0.05, between_bytes_s=0.05)

    async def test_an_engine_that_does_not_begin_in_time_is_given_up(self, house: Any) -> None:
        """A 504 that names the limit; it is not asked again, which would take as long."""
        house.engine.script = Hanging()
        reply = await house.chat()
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "engine_timeout")
        assert "alpha did not answer within" in reply.json()["error"]["message"]
        assert "first_byte_s" in reply.json()["error"]["hint"]
        assert house.engine.connections == 1  # which a busy engine has not read yet
        assert [error.code for error in house.supervisor.unwell] == ["engine_timeout"]

    async def test_a_fallback_answers_for_an_engine_that_does_not_begin(self, house: Any) -> None:
        """The same engine would take as long again, another one need not."""
        alpha = house.catalog.profiles["alpha"]
        house.catalog.profiles["alpha"] = alpha.model_copy(update={"fallbacks": ("beta/fast",)})
        patient(house, "beta/fast")

        async def script(seen: Any, wire: Any) -> None:
            await (Hanging() if json.loads(seen.body)["model"] == "alpha" else answering(b'{"choices":[]}'))(seen, wire)

        house.engine.script = script
        reply = await house.chat()
        assert (reply.status_code, reply.headers["x-sparkdash-fallback"]) == (200, "alpha; engine_timeout")
        assert house.supervisor.leases == ["alpha", "beta/fast"]

    async def test_a_stream_that_stands_still_is_ended_with_the_reason(self, house: Any) -> None:
        """In the stream's own words, as it has begun; it does not have as long as its first byte might have taken."""
        patient(house, "alpha")
        house.engine.script = Hanging(WORD)
        reply = await asyncio.wait_for(house.chat(stream=True), 20)
        assert reply.content.startswith(WORD)
        told = json.loads(reply.content.split(b"\n\n")[-3].removeprefix(b"data: "))["error"]
        assert (told["code"], "sent nothing more within" in told["message"]) == ("engine_timeout", True)
        assert (await house.ended()).error == "engine_timeout"

    async def test_pings_are_no_sign_of_work(self, house: Any) -> None:
        """llama-server writes comments into a stream while its engine stands still: that ends it all the same."""

        async def pings_after_a_word(_seen: Any, wire: Any) -> None:
            await wire.head()
            await wire.chunk(WORD)
            while True:
                await wire.chunk(b": ping\n\n")
                await asyncio.sleep(0.01)

        patient(house, "alpha")
        house.engine.script = pings_after_a_word
        reply = await house.chat(stream=True)
        assert b"sent nothing more within" in reply.content
        assert (await house.ended()).error == "engine_timeout"

    async def test_a_profiles_own_limit_goes_first(self, house: Any) -> None:
        """A model with long prompts may have longer than the others."""
        alpha = house.catalog.profiles["alpha"]
        house.catalog.profiles["alpha"] = alpha.model_copy(update={"first_byte_s": 60.0})
        asked, go = asyncio.Event(), asyncio.Event()

        async def late(_seen: Any, wire: Any) -> None:
            asked.set()
            await go.wait()
            await wire.answer(b'{"choices":[]}')

        house.engine.script = late
        call = asyncio.create_task(house.chat())
        await asked.wait()
        await asyncio.sleep(0.2)  # four times the box's limit
        assert not call.done()
        go.set()
        assert (await call).status_code == 200

    async def test_a_slow_client_is_not_the_engines_silence(self, house: Any) -> None:
        """While the engine waits for its client nothing can come of it. Its own limit outlasts the pauses of a busy box."""
        alpha = house.catalog.profiles["alpha"]
        house.catalog.profiles["alpha"] = alpha.model_copy(update={"first_byte_s": 30.0, "between_bytes_s": 1.0})
        big = b"data: " + b"x" * 65536 + b"\n\n"

        async def script(_seen: Any, wire: Any) -> None:
            await wire.head()
            for _ in range(200):  # more than all buffers on the way
                await wire.chunk(big)
            await wire.chunk(b"data: [DONE]\n\n")
            await wire.end()

        house.engine.script = script
        size = 0
        body = {"model": "alpha", "stream": True}
        async with house.client.stream("POST", "/v1/chat/completions", json=body) as reply:
            async for piece in reply.aiter_raw():
                if not size:
                    await asyncio.sleep(2.5)  # more than twice the limit
                size += len(piece)
        assert size > 200 * 65536
        assert (await house.ended()).state is RequestState.DONE


FIELD = b'error: {"code":400,"message":"the request exceeds the context","type":"x"}\n\n'
END = b"data: [DONE]\n\n"
WORDS = b'data: {"choices":[{"index":0,"delta":{"content":"error: {no} data: x"}}]}\n\n'


async def test_an_error_in_a_field_of_its_own_fails_the_request(house: Any) -> None:
    """As llama-server wrote it before September 2025: whoever reads the stream sees it, and no text is taken for one."""
    house.engine.script = streaming(WORDS, FIELD, END)
    assert FIELD in (await house.chat(stream=True)).content
    assert (row := await house.ended()).state is RequestState.FAILED
    assert row.error == "engine_error"
    asked = {"model": "alpha", "messages": [{"role": "user", "content": "x"}]}
    lines = (await house.client.post("/api/chat", json=asked)).text.splitlines()
    assert json.loads(lines[-1]) == {"error": "the request exceeds the context"}
    with pytest.raises(UpstreamError, match="the request exceeds the context"):
        await house.upstream.generate(house.engine.url, "m", timeout_s=60)
    assert [frame.data for frame in Frames().feed(FIELD)] == ['{"error": ' + FIELD[7:-2].decode() + "}"]
    for number, (frames, state) in enumerate((((FIELD,), RequestState.FAILED), ((WORDS, END), RequestState.DONE)), 3):
        house.engine.script = streaming(*frames)
        await house.chat(stream=True)
        assert (await house.ended(number)).state is state


def coded(value: Any) -> bytes:
    return gzip.compress(json.dumps(value).encode())


async def test_a_compressed_answer_passes_as_it_is(house: Any) -> None:
    """Though nobody asked for it: with its header, by which every client reads it."""
    body = coded({"choices": [{"message": {"content": "Hello"}}]})
    house.engine.script = answering(body, content_encoding="gzip")
    reply = await house.chat()
    assert (reply.status_code, reply.headers["content-encoding"]) == (200, "gzip")
    assert reply.json()["choices"][0]["message"]["content"] == "Hello"
    assert (await house.ended()).state is RequestState.DONE


async def test_a_compressed_stream_passes_as_it_is(house: Any) -> None:
    """Also where counts would be taken out of it."""
    packed = gzip.compress(WORDS + END)
    house.engine.script = streaming(packed[:20], packed[20:], content_encoding="gzip")
    body = {"model": "alpha", "messages": [], "stream": True}
    assert (await house.client.post("/v1/chat/completions", json=body)).content == WORDS + END


@pytest.mark.parametrize("status", [400, 500])
async def test_the_words_of_a_compressed_error_are_read(house: Any, status: int) -> None:
    house.supervisor.sick = "its health check fails"
    body = coded({"error": {"message": "maximum context length is 9 tokens, no chat template"}})
    house.engine.script = answering(body, status=status, content_encoding="gzip")
    told = (await house.chat()).json()["error"]
    assert told["code"] == ("context_length_exceeded" if status == 400 else "engine_died")
    assert "no chat template" in told["message"]
