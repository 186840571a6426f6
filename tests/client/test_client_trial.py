"""The short real request of `setup` and `connect --test`: a model that thinks may have no answer to show."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sparkdash import listen
from sparkdash.client.trial import Protocol, attempt, what_it_said
from sparkdash.errors import UpstreamError
from sparkdash.wire import RequestChannel, ResponseHeaders

Events = list[dict[str, Any]]


@pytest.fixture
async def engine() -> AsyncIterator[tuple[str, list[Events]]]:
    """An engine that answers a post with the first of these streams."""
    streams: list[Events] = []

    async def serve(own: RequestChannel) -> None:
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in streams[0]) + "data: [DONE]\n\n"
        own.start(200, ResponseHeaders([]))
        own.finish(body.encode())

    server, sock = listen.Server(serve), listen.bind_tcp("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    yield listen.root_url(sock), streams
    server.stop()
    await serving


def chat(finish: str, **delta: str) -> Events:
    return [{"choices": [{"delta": {"role": "assistant", **delta}, "finish_reason": finish}]}]


INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "error": None}
HIDDEN: dict[Protocol, Events] = {
    "chat": chat("length", content=""),
    "messages": [
        {"type": "message_start", "message": {"content": []}},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 256}},
    ],
    "responses": [{"type": "response.incomplete", "response": INCOMPLETE}],
}


@pytest.mark.parametrize("protocol", HIDDEN)
async def test_an_answer_whose_tokens_were_all_hidden_reasoning_is_no_fault(
    engine: tuple[str, list[Events]], protocol: Protocol
) -> None:
    url, streams = engine
    streams.append(HIDDEN[protocol])
    trial = await asyncio.to_thread(attempt, url, None, protocol, "alpha")
    assert trial.text == ""
    assert trial.total_s >= trial.first_s > 0
    assert what_it_said(trial) == "alpha was still thinking after 256 tokens, and its engine does not show thoughts."


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
async def test_a_thought_is_a_first_token(engine: tuple[str, list[Events]], key: str) -> None:
    url, streams = engine
    streams.append(chat("length", **{key: "The user  wants\none word."}))
    trial = await asyncio.to_thread(attempt, url, None, "chat", "alpha")
    assert what_it_said(trial) == "alpha said: The user wants one word."


@pytest.mark.parametrize("content", ["", "\n\n"])
async def test_an_answer_that_ended_by_itself_has_to_have_a_word(
    engine: tuple[str, list[Events]], content: str
) -> None:
    url, streams = engine
    streams.append(chat("stop", content=content))
    with pytest.raises(UpstreamError, match="without a word") as caught:
        await asyncio.to_thread(attempt, url, None, "chat", "alpha")
    assert caught.value.code == "no_text"
