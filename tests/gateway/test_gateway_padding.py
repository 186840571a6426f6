"""White space before an answer in one piece: for clients that asked for it, while their model loads."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from scripted import answering

from sparkdash.domain.request import RequestState
from sparkdash.errors import EngineError
from sparkdash.gateway.relay import passthrough
from sparkdash.settings import Settings

ASKS = {"x-sparkdash-keep-alive": "whitespace"}
ANSWER = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"alpha","choices":[{"index":0,"finish_reason":"stop","message":'
    b'{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}'
)
BODY = {"model": "alpha", "messages": []}
CHAT = "/v1/chat/completions"
BROKEN = EngineError("alpha did not come up: out of memory.", code="out_of_memory", phase="load", log_tail=("oom",))
REFUSED = 400
"""How a load that failed is told."""


@pytest.fixture
def settings() -> Settings:
    """Headers go out at once."""
    return Settings(hold_headers_s=0, padded_clients=("OpenAI/JS *", "old-client*"))


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passthrough, "KEEP_ALIVE_S", 0.02)


@pytest.fixture
def waiting(waiting: Any) -> Any:
    """A house that holds every request back, before an engine that would answer at once."""
    waiting.engine.script = answering(ANSWER)
    return waiting


def asking(house: Any, headers: dict[str, str], path: str = CHAT, **more: Any) -> Any:
    return house.client.stream("POST", path, json=BODY | more, headers=headers)


@pytest.mark.parametrize("headers", [ASKS, {"user-agent": "OpenAI/JS 6.49.0"}, {"user-agent": "old-client"}])
async def test_who_asks_for_it_gets_white_space_and_then_the_answer(waiting: Any, headers: dict[str, str]) -> None:
    """Status 200 while the model loads, the engine's bytes behind the white space, its counts in the books."""
    async with asking(waiting, headers) as reply:
        pieces = reply.aiter_raw()
        before = await anext(pieces) + await anext(pieces)
        assert (reply.status_code, reply.headers["content-type"]) == (200, "application/json")
        waiting.supervisor.gate.set()
        body = before + b"".join([piece async for piece in pieces])
    assert before.strip() == b""
    assert body.lstrip() == ANSWER
    row = await waiting.ended()
    assert (row.state, row.completion_tokens, row.stream) == (RequestState.DONE, 2, False)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/rerank"])
async def test_it_is_had_wherever_the_answer_is_json(waiting: Any, path: str) -> None:
    """In every protocol the answer may begin with white space."""
    async with asking(waiting, ASKS, path) as reply:
        assert reply.status_code == 200
        waiting.supervisor.gate.set()
        assert json.loads(await reply.aread())["id"] == "c"


@pytest.mark.parametrize(("path", "headers"), [
    (CHAT, {}), (CHAT, {"user-agent": "OpenAI/Python 3"}),
    (CHAT, {"user-agent": "old-client", "x-sparkdash-keep-alive": "none"}), ("/v1/audio/transcriptions", ASKS),
    ("/upstream/alpha/v1/chat/completions", ASKS), ("/api/chat", ASKS), ("/api/embed", ASKS),
])  # fmt: skip
async def test_who_does_not_waits_for_its_true_status(waiting: Any, path: str, headers: dict[str, str]) -> None:
    """A load that fails is told by its status, as are audio and Ollama's answers, which need not be JSON or are made anew."""
    waiting.supervisor.error = BROKEN
    body = BODY | {"stream": False, "input": "a", "messages": [{"role": "user", "content": "a"}]}
    posting = asyncio.create_task(waiting.client.post(path, json=body, headers=headers))
    await waiting.in_state(RequestState.WAITING)
    waiting.supervisor.gate.set()
    reply = await posting
    assert reply.status_code == REFUSED
    assert "out of memory" in reply.text
    assert path.startswith("/api/") or reply.json()["error"]["log_tail"] == ["oom"]


async def test_what_fails_early_has_its_true_status(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within `hold_headers_s` nothing has been sent yet."""
    monkeypatch.setitem(house.app._deps.settings.__dict__, "hold_headers_s", 60.0)
    house.supervisor.error = BROKEN
    assert (await house.client.post(CHAT, json=BODY, headers=ASKS)).status_code == REFUSED


async def broken(house: Any, path: str = CHAT) -> dict[str, Any]:
    """The body of an answer that breaks off."""
    got = b""
    async with asking(house, ASKS, path) as reply:
        assert reply.status_code == 200
        house.supervisor.gate.set()
        try:
            async for piece in reply.aiter_raw():
                got += piece
        except httpx.RemoteProtocolError:
            found: dict[str, Any] = json.loads(got)
            return found
    raise AssertionError("the answer has an end")


async def test_a_load_that_fails_late_is_an_error_in_an_answer_that_breaks_off(waiting: Any) -> None:
    """A reader of the body reads why; nobody can take it for an answer. The books have the true status."""
    waiting.supervisor.error = BROKEN
    error = (await broken(waiting))["error"]
    assert (error["code"], error["src"]) == ("out_of_memory", "sparkdash")
    assert "out of memory" in error["message"]
    row = await waiting.ended()
    assert (row.state, row.error, row.status) == (RequestState.FAILED, "out_of_memory", REFUSED)
    waiting.supervisor.gate.clear()
    assert (await broken(waiting, "/v1/messages"))["type"] == "error"


@pytest.mark.parametrize(("status", "kind", "body", "code"), [
    (400, "application/json", b'{"error":{"message":"no tools here","code":"no_tools"}}', "no_tools"),
    (200, "text/event-stream", b"data: {}\n\n", "engine_refused"), (302, "application/json", b"{}", "engine_refused"),
])  # fmt: skip
async def test_what_cannot_stand_behind_white_space_is_an_error(
    waiting: Any, status: int, kind: str, body: bytes, code: str
) -> None:
    """An engine's refusal comes with its words."""

    waiting.engine.script = answering(body, status, kind)
    assert (await broken(waiting))["error"]["code"] == code


async def test_an_sdk_learns_the_true_status_with_its_next_post(waiting: Any) -> None:
    """openai-python takes the broken answer for a connection that failed, and posts once more; a load that just failed is told at once."""
    import openai

    waiting.supervisor.error = BROKEN
    async with openai.AsyncOpenAI(base_url=waiting.base + "/v1", api_key="x", default_headers=ASKS) as sdk:
        calling = asyncio.create_task(sdk.chat.completions.create(model="alpha", messages=[]))
        await waiting.in_state(RequestState.WAITING)
        waiting.supervisor.gate.set()
        with pytest.raises(openai.APIStatusError, match="out of memory") as caught:
            await calling
    assert caught.value.status_code == REFUSED


async def test_a_client_of_http_1_0_reads_to_the_end_of_its_connection(waiting: Any) -> None:
    body = json.dumps(BODY).encode()
    reader, writer = await waiting.connect(
        b"POST /v1/chat/completions HTTP/1.0\r\ncontent-type: application/json\r\nx-sparkdash-keep-alive: whitespace\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(body), body)
    )
    head = await reader.readuntil(b"\r\n\r\n\n")
    waiting.supervisor.gate.set()
    assert b"transfer-encoding" not in head.lower()
    assert (await reader.read()).lstrip() == ANSWER
    writer.close()
