"""Requests of 19 real clients, sent again over real HTTP: accepted, and answered as each protocol's own types read it.

As recorded, with `stream` turned over, and while the model still loads.
"""

import json
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter
from recorded_streams import PATHS

from sparkdash.settings import Settings

pytestmark = pytest.mark.usefixtures("openai_sdk")

RECORDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "client-requests.json").read_text()
)
CLIENTS = sorted({one["client"] for one in RECORDED})
NOT_IN_THE_SIM = {"/v1/rerank", "/v1/responses/compact"}
"""Routes that are relayed, and to which the simulated engine says 404."""


@pytest.fixture
def settings() -> Settings:
    """Any model is alpha; waiting streams are answered at once."""
    return Settings(model_names={"*": "alpha"}, hold_headers_s=0)


@pytest.fixture
async def serving(house: Any, tools: Any) -> AsyncIterator[Any]:
    """The gateway before a simulated vLLM."""
    async with tools.simulated_engine(house):
        yield house


# --- shapes -----------------------------------------------------------------------------------------------------


def told_in(text: str) -> list[str]:
    """Data of a stream's events."""
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]


def chat_stream(text: str, body: dict[str, Any]) -> None:
    from openai.types.chat import ChatCompletionChunk

    *chunks, done = told_in(text)
    assert done == "[DONE]"
    read = [ChatCompletionChunk.model_validate_json(data, strict=True) for data in chunks]
    assert all(chunk.object == "chat.completion.chunk" and chunk.model for chunk in read)
    assert sum(choice.finish_reason is not None for chunk in read for choice in chunk.choices) == (body.get("n") or 1)
    assert "".join(choice.delta.content or "" for chunk in read for choice in chunk.choices)
    wants = (body.get("stream_options") or {}).get("include_usage", False)
    assert any(not chunk.choices for chunk in read) is wants


def known(event: dict[str, Any]) -> dict[str, Any]:
    """With the one count that the client's type of 2026-11 demands and no engine has yet; the client itself does not."""
    usage = event.get("response", {}).get("usage")
    if usage:
        usage["input_tokens_details"].setdefault("cache_write_tokens", 0)
    return event


def ending(body: dict[str, Any]) -> str:
    """Codex has a model loaded by asking for one token."""
    return "incomplete" if body.get("max_output_tokens") == 1 else "completed"


@cache
def event_type() -> TypeAdapter[Any]:
    from openai.types.responses import ResponseStreamEvent

    return TypeAdapter(ResponseStreamEvent)


def response_stream(text: str, body: dict[str, Any]) -> None:
    events = [event_type().validate_python(known(json.loads(data))) for data in told_in(text)]
    assert [event.type for event in (events[0], events[-1])] == ["response.created", "response.completed"]
    assert sum(event.type == "response.created" for event in events) == 1
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert len({event.response.id for event in events if hasattr(event, "response")}) == 1
    assert (events[-1].response.status, bool(events[-1].response.output_text)) == (ending(body), True)


SHAPES: dict[str, Callable[[str, dict[str, Any]], None]] = {
    "/v1/chat/completions": chat_stream,
    "/v1/responses": response_stream,
}
"""Protocols for whose events the official client has types."""


def requests_of(client: str) -> list[dict[str, Any]]:
    return [one for one in RECORDED if one["client"] == client]


async def send(house: Any, one: dict[str, Any], body: Any) -> httpx.Response:
    path = one["path"].replace("stub-model", "alpha") + (f"?{one['query']}" if one["query"] else "")
    headers = {"user-agent": one["user_agent"] or ""}
    reply: httpx.Response = await house.client.request(one["method"], path, json=body, headers=headers)
    return reply


def accepted(one: dict[str, Any], body: Any, reply: httpx.Response) -> None:
    if one["path"] in NOT_IN_THE_SIM:
        assert (reply.status_code, "Not Found" in reply.text) == (404, True)
        return
    assert reply.status_code == 200, (one["case"], reply.text)
    streamed = isinstance(body, dict) and body.get("stream") is True
    assert reply.headers["content-type"].startswith("text/event-stream") is streamed or one["method"] == "HEAD"


# --- the tests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", CLIENTS)
async def test_what_a_client_was_seen_to_send_is_answered(serving: Any, client: str) -> None:
    """Each of its requests as it was, and each that generates also with the other kind of answer."""
    for one in requests_of(client):
        bodies = [one["body"]]
        if one["path"] in PATHS.values():
            bodies.append({**one["body"], "stream": one["body"].get("stream") is not True})
        for body in bodies:
            accepted(one, body, await send(serving, one, body))


@pytest.mark.parametrize("client", CLIENTS)
async def test_and_also_while_its_model_loads(serving: Any, client: str) -> None:
    """A stream that began with keep-alives of ours and goes on with the engine's events is one stream to the client's types."""
    supervisor = serving.supervisor
    for one in requests_of(client):
        if not (isinstance(one["body"], dict) and one["body"].get("stream") is True):
            continue
        supervisor.gate.clear()
        headers = {"user-agent": one["user_agent"]}
        async with serving.client.stream("POST", one["path"], json=one["body"], headers=headers) as reply:
            pieces = reply.aiter_text()
            text = await anext(pieces)
            supervisor.gate.set()
            text += "".join([piece async for piece in pieces])
        if one["path"] in SHAPES:
            SHAPES[one["path"]](text, one["body"])
