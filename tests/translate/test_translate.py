"""/v1/messages and /v1/responses for engines that speak chat completions only, judged by the SDKs' own helpers."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from chats import DONE, counts, delta, whole
from scripted import answering, streaming

from sparkdash.domain.request import RequestState

if TYPE_CHECKING:
    import openai

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("openai_sdk", "anthropic_sdk")]

ASK = {"model": "m", "max_tokens": 12, "messages": [{"role": "user", "content": "hi"}]}
TOOL = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
FETCH = {"type": "web_search_20250305", "name": "web_search"}


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("data:")]


async def test_an_engine_whose_404_says_so_gets_a_chat(box: Any) -> None:
    """Nobody said what it speaks; its first answer did."""
    answer = await box.client.post("/v1/messages", json=ASK)
    assert answer.status_code == 200, answer.text
    told = answer.json()
    shape = (told["type"], told["role"], told["model"], told["stop_reason"])
    assert shape == ("message", "assistant", "m", "max_tokens")
    assert [block["type"] for block in told["content"]] == ["thinking", "text"]
    row = await box.newest()
    assert (row.route, row.state, row.completion_tokens) == ("/v1/messages", RequestState.DONE, 12)


async def test_a_stream_comes_piece_by_piece_and_its_counts_are_known(box: Any) -> None:
    """Each delta leaves the engine only after the client has the one before it: nothing is held back on the way."""
    had = asyncio.Event()

    async def script(_seen: Any, wire: Any) -> None:
        await wire.head()
        for word in ("one", "two"):
            await wire.chunk(delta({"role": "assistant", "content": word}))
            await had.wait()
            had.clear()
        await wire.chunk(delta({}, "stop") + counts(21, 2) + DONE)
        await wire.end()

    box.engine.script = script
    text = ""
    async with box.client.stream("POST", "/v1/messages", json=ASK | {"model": "scripted", "stream": True}) as answer:
        async for piece in answer.aiter_text():
            text += piece
            if '"one"' in piece or '"two"' in piece:
                had.set()
    told = events(text)
    assert [e["delta"]["text"] for e in told if e["type"] == "content_block_delta"] == ["one", "two"]
    assert (told[0]["type"], told[-1]["type"]) == ("message_start", "message_stop")
    row = await box.newest()
    assert (row.prompt_tokens, row.completion_tokens, row.finish_reason) == (21, 2, "end_turn")


async def test_what_the_profile_sets_reaches_the_engine_and_what_does_not_is_named(box: Any) -> None:
    """`min_p` is the profile's, `seed` the client's. No chat has the provider's own tools or its context editing."""
    box.engine.script = answering(whole({"content": "ok"}))
    more = {"seed": 7, "context_management": {"edits": []}, "tools": [FETCH], "metadata": {"user_id": "u"}}
    answer = await box.client.post("/v1/messages", json=ASK | {"model": "scripted", **more})
    assert answer.json()["content"][0]["text"] == "ok"
    asked = box.engine.asked[-1]
    assert (asked["min_p"], asked["seed"], asked["model"]) == (0.5, 7, "scripted")
    assert not asked.keys() & {"context_management", "tools", "metadata"}
    assert answer.headers["x-sparkdash-left-out"] == "tool web_search_20250305, context_management"
    assert "authorization" not in box.engine.heads[-1].lower()


async def test_an_engines_refusal_has_its_own_status_and_words(box: Any) -> None:
    box.engine.answers(422, {"error": {"message": "min_p must be in [0, 1]", "code": 422}})
    answer = await box.client.post("/v1/messages", json=ASK | {"model": "scripted", "stream": True})
    assert answer.status_code == 422
    told = answer.json()
    assert (told["type"], told["error"]["message"]) == ("error", "min_p must be in [0, 1]")
    assert told["error"]["src"] == "engine"


async def test_an_engine_that_dies_in_the_middle_is_told_in_the_streams_own_words(box: Any) -> None:
    box.engine.script = streaming(delta({"role": "assistant", "content": "one"}), dies=True)
    answer = await box.client.post("/v1/messages", json=ASK | {"model": "scripted", "stream": True})
    last = events(answer.text)[-1]
    assert (answer.status_code, last["type"], last["error"]["code"]) == (200, "error", "engine_died")
    assert (await box.newest()).state is RequestState.FAILED


FUNCTION = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


@pytest_asyncio.fixture(loop_scope="module")
async def client(box: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    import openai

    async with openai.AsyncOpenAI(base_url=f"{box.url}/v1", api_key="sk-local", max_retries=0) as made:
        yield made


REQUIRED = (
    "id object created_at completed_at status incomplete_details model previous_response_id instructions output error"
    " tools tool_choice truncation parallel_tool_calls text top_p presence_penalty frequency_penalty top_logprobs"
    " temperature reasoning usage max_output_tokens max_tool_calls store background service_tier metadata"
    " safety_identifier prompt_cache_key"
)
"""Keys of a response by the Open Responses schema of July 2026."""


async def test_a_response_has_every_key_of_open_responses(box: Any) -> None:
    asked = {"model": "m", "input": "hi", "max_output_tokens": 9, "temperature": 0.5, "text": {"verbosity": "low"}}
    told = (await box.client.post("/v1/responses", json=asked | {"tools": [FUNCTION]})).json()
    assert set(REQUIRED.split()) <= told.keys()
    assert (told["temperature"], told["top_p"], told["max_output_tokens"]) == (0.5, 1.0, 9)
    assert told["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert {"name", "description", "parameters", "strict"} <= told["tools"][0].keys()


async def test_a_response_streams_in_numbered_events(box: Any, client: openai.AsyncOpenAI) -> None:
    stream = await client.responses.create(model="m", input="hi", max_output_tokens=12, stream=True)
    told = [event async for event in stream]
    assert [event.sequence_number for event in told] == list(range(len(told)))
    assert (told[0].type, told[-1].type) == ("response.created", "response.incomplete")
    assert {event.type for event in told} >= {"response.output_text.delta", "response.output_text.done"}
    assert told[-1].response.id == told[0].response.id
    assert told[-1].response.usage.output_tokens == 12
    assert told[-1].response.model == "m"


async def test_the_official_clients_tool_round_trip(box: Any, client: openai.AsyncOpenAI) -> None:
    function = {"name": "weather", "arguments": '{"city": "Paris"}'}
    call: Any = {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    box.engine.script = answering(whole(call))
    tools: Any = [FUNCTION, {"type": "web_search"}]
    first = await client.responses.create(model="scripted", input="Weather?", tools=tools)
    call = next(item for item in first.output if item.type == "function_call")
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Paris"})
    turns: Any = [
        {"role": "user", "content": "Weather?"},
        {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"},
    ]
    box.engine.script = answering(whole({"content": "Sunny."}))
    second = await client.responses.create(model="scripted", input=turns, tools=tools, store=False)
    assert second.output_text == "Sunny."
    asked = box.engine.asked[-1]
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["weather"]
    assert asked["messages"][-1]["role"] == "tool"
    assert not asked.keys() & {"store", "web_search_options", "input"}


async def test_a_response_is_continued_and_found_by_its_id(box: Any, client: openai.AsyncOpenAI) -> None:
    """By the official client, whole and streamed; of the engine it asks only what a chat has."""
    import openai

    box.engine.script = thinks_and_calls([])
    first = await client.responses.create(model="scripted", input="one", stream=True)
    first_id = [event async for event in first][-1].response.id  # type: ignore[union-attr]
    async with client.responses.stream(model="scripted", input="two", previous_response_id=first_id) as stream:
        second = await stream.get_final_response()
    assert second.store is True  # type: ignore[attr-defined]
    turns = [(turn["role"], turn["content"]) for turn in box.engine.asked[-1]["messages"]]
    assert turns == [("user", "one"), ("assistant", "Hi there"), ("user", "two")]
    kept = await client.responses.retrieve(second.id)
    assert (kept.output_text, kept.previous_response_id) == ("Hi there", first_id)
    listed = [item async for item in await client.responses.input_items.list(second.id, order="asc")]
    assert [item.type for item in listed] == ["message", "reasoning", "message", "message"]
    await client.responses.delete(first_id)
    unkept = await client.responses.create(model="scripted", input="three", store=False, stream=True)
    unkept_id = [event async for event in unkept][-1].response.id  # type: ignore[union-attr]
    for gone in (first_id, unkept_id):
        with pytest.raises(openai.NotFoundError) as caught:
            await client.responses.create(model="scripted", input="four", previous_response_id=gone)
        assert caught.value.code == "previous_response_not_found"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_compressed_answer_is_read(box: Any, stream: bool) -> None:
    """No engine is asked for one; some send it."""
    said = {"content": "Packed."}
    data = gzip.compress(delta(said, "stop") + DONE if stream else whole(said))
    kind = "text/event-stream" if stream else "application/json"
    box.engine.script = answering(data, 200, kind, content_encoding="gzip")
    answer = await box.client.post("/v1/messages", json=ASK | {"model": "scripted", "stream": stream})
    assert "Packed." in answer.text
    assert "content-encoding" not in answer.headers


async def test_a_response_in_the_background_is_polled_or_cancelled(box: Any, client: openai.AsyncOpenAI) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def script(seen: Any, wire: Any) -> None:
        asked.set()
        if b"never" in seen.body:
            await wire.client_left()
            return
        await go_on.wait()
        await wire.answer(whole({"content": "Done."}))

    box.engine.script = script
    queued = await client.responses.create(model="scripted", input="hi", background=True)
    assert queued.status == "queued"
    await asked.wait()
    assert (await client.responses.retrieve(queued.id)).status in ("queued", "in_progress")
    go_on.set()
    await box.newest()
    (task,) = (one for one in asyncio.all_tasks() if one.get_name() == "background response")
    await task
    done = await client.responses.retrieve(queued.id)
    assert (done.id, done.status, done.background, done.output_text) == (queued.id, "completed", True, "Done.")
    other = await client.responses.create(model="scripted", input="never", background=True)
    assert (await client.responses.cancel(other.id)).status == "cancelled"


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ({"message": "boom", "type": "BadRequestError", "code": 400}, "invalid_request_error", "boom"),
        ({"message": "slow down", "type": "RateLimit", "code": 429}, "rate_limit_error", "slow down"),
        ({"message": "out of memory", "type": "InternalServerError", "code": 500}, "api_error", "out of memory"),
        ("it fell over", "api_error", "it fell over"),
    ],
)
async def test_an_engines_error_in_its_stream_keeps_its_words_and_kind(
    box: Any, said: object, kind: str, words: str
) -> None:
    """In the client's own protocol, and the row has failed."""
    error = b"data: %b\n\n" % json.dumps({"error": said}).encode()
    box.engine.script = streaming(delta({"role": "assistant", "content": "Hel"}), error)
    reply = await box.client.post("/v1/messages", json=ASK | {"model": "scripted", "stream": True})
    last = events(reply.text)[-1]
    assert (last["type"], last["error"]["type"], last["error"]["message"]) == ("error", kind, words)
    assert (await box.newest()).state is RequestState.FAILED
    reply = await box.client.post("/v1/responses", json={"model": "scripted", "input": "hi", "stream": True})
    *before, failed, error = events(reply.text)
    assert (failed["type"], failed["response"]["error"]["message"]) == ("response.failed", words)
    assert (error["type"], error["message"]) == ("error", words)
    assert failed["response"]["id"] == before[0]["response"]["id"]
    assert [each["sequence_number"] for each in (*before, failed, error)] == [*range(len(before) + 2)]
    assert (await box.newest()).state is RequestState.FAILED


THOUGHT = [{"reasoning_content": "I "}, {"reasoning": "think."}, {"content": "Hi"}, {"content": " there"}]
INDEXED: list[dict[str, Any]] = [
    {"index": 0, "id": "a", "function": {"name": "weather", "arguments": ""}},
    {"index": 1, "id": "b", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
    {"index": 0, "function": {"arguments": '{"city":'}},
    {"index": 0, "function": {"arguments": '"Rome"}'}},
]
WITHOUT_INDEX: list[dict[str, Any]] = [
    {"id": "a", "function": {"name": "weather", "arguments": '{"city"'}},
    {"function": {"arguments": ':"Rome"}'}},
    {"id": "b", "function": {"name": "weather", "arguments": {"city": "Oslo"}}},
]
WITHOUT_IDS: list[dict[str, Any]] = [
    {"function": {"name": "weather", "arguments": '{"city":"Rome"}'}},
    {"function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
]
CITIES = ["Rome", "Oslo"]


def thinks_and_calls(calls: list[dict[str, Any]]) -> Any:
    said = [*THOUGHT, *({"tool_calls": [call]} for call in calls)]
    return streaming(*map(delta, said), delta({}, "tool_calls"), counts(21, 9), DONE)


@pytest.mark.parametrize(
    "calls", [INDEXED, WITHOUT_INDEX, WITHOUT_IDS], ids=["by index, in turns", "without an index", "without an id"]
)
async def test_thoughts_text_and_parallel_calls_are_items_of_their_own(
    box: Any, client: openai.AsyncOpenAI, calls: list[dict[str, Any]]
) -> None:
    """To the streaming helper of each SDK, and in the events that it hands on. Without an index an id or a name begins a call."""
    import anthropic

    box.engine.script = thinks_and_calls(calls)
    async with client.responses.stream(model="scripted", input="hi", tools=[FUNCTION | {"strict": False}]) as stream:  # type: ignore[list-item]
        told = [event async for event in stream]
        response = await stream.get_final_response()
    assert [event.sequence_number for event in told] == list(range(len(told)))
    places = {event.item.type: event.output_index for event in told if event.type == "response.output_item.added"}
    assert places == {"reasoning": 0, "message": 1, "function_call": 3}
    assert "".join(e.delta for e in told if e.type == "response.reasoning_text.delta") == "I think."
    thought, message, *made = response.output
    assert (thought.content[0].text, message.content[0].text) == ("I think.", "Hi there")  # type: ignore[union-attr,index]
    assert [json.loads(call.arguments)["city"] for call in made] == CITIES  # type: ignore[union-attr]
    ask: Any = ASK | {"model": "scripted", "tools": [TOOL]}
    other = anthropic.AsyncAnthropic(base_url=box.url, api_key="local", max_retries=0)
    async with other, other.messages.stream(**ask) as answered:
        final = await answered.get_final_message()
    assert [block.type for block in final.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block.input["city"] for block in final.content if block.type == "tool_use"] == CITIES  # type: ignore[index]
    assert (final.stop_reason, final.usage.input_tokens, final.usage.output_tokens) == ("tool_use", 21, 9)
