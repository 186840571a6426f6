"""The routes over real HTTP: the official client, the other protocols, errors, and what the metrics say of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from simulated import serving

from sparkdash.engines import registry
from sparkdash.sim.app import App
from sparkdash.sim.prompt import OrderedCall, PromptOrders, read_orders
from tests.sim.conftest import profile_of, scrape

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.usefixtures("openai_sdk", "anthropic_sdk")

Site = tuple[App, str]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A speculating engine, two hundred times as fast as it says."""
    async with serving(profile_of(acceptance=(0.8, 0.6), time_scale=200)) as served:
        yield served


@pytest.fixture
async def http(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=site[1], timeout=30, verify=False) as client:
        yield client


@pytest.fixture
async def client(site: Site) -> AsyncIterator[openai.AsyncOpenAI]:
    import openai

    async with openai.AsyncOpenAI(base_url=f"{site[1]}/v1", api_key="none", max_retries=0) as official:
        yield official


def chat(**more: Any) -> dict[str, Any]:
    return {"model": "rehearsal", "messages": [{"role": "user", "content": "Tell me of blocks."}], **more}


async def test_official_client_streams_a_chat(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        **chat(max_tokens=50), stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert text.startswith("This is a simulated answer")
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 50
    assert len(chunks) < 50, "speculation puts several tokens into a chunk"


async def test_usage_and_metrics_agree_to_the_token(client: openai.AsyncOpenAI, site: Site) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief. " * 40}]
    prompt = cached = generated = 0
    for question in ("What is a block?", "And a page?", "And a queue?"):
        messages.append({"role": "user", "content": question})
        answer = await client.chat.completions.create(model="alias", messages=messages)
        messages.append({"role": "assistant", "content": answer.choices[0].message.content})
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        prompt += answer.usage.prompt_tokens
        cached += answer.usage.prompt_tokens_details.cached_tokens or 0
        generated += answer.usage.completion_tokens
    seen = await scrape(site[1])
    total = {name: seen.total(f"vllm:{name}_total") for name in (
        "prompt_tokens", "prefix_cache_queries", "prefix_cache_hits", "prompt_tokens_cached", "generation_tokens",
        "spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens",
    )}  # fmt: skip
    assert total["prompt_tokens"] == total["prefix_cache_queries"] == prompt
    assert total["prefix_cache_hits"] == total["prompt_tokens_cached"] == cached > 0
    assert total["generation_tokens"] == generated
    by_source = seen.by("vllm:prompt_tokens_by_source_total", "source")
    assert by_source["local_compute"] == prompt - cached
    at = seen.by("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position")
    assert sum(at.values()) == total["spec_decode_num_accepted_tokens"]
    assert total["spec_decode_num_draft_tokens"] == 2 * total["spec_decode_num_drafts"]
    assert at["1"] <= at["0"] <= total["spec_decode_num_drafts"]
    assert seen.by("vllm:request_success_total", "finished_reason")["stop"] == 3
    assert seen.total("vllm:time_to_first_token_seconds_count") == 3


async def test_the_adapter_finds_every_name_that_it_looks_for(http: httpx.AsyncClient, site: Site) -> None:
    await http.post("/v1/chat/completions", json=chat(max_tokens=5))
    names = registry.adapter(site[0].profile.engine).metrics
    seen = await scrape(site[1])
    for candidates in (
        names.generated, names.prefilled, names.prefix_hits, names.prefix_queries, names.kv_used, names.kv_info,
        names.running, names.waiting, names.drafts, names.draft_tokens, names.accepted, names.accepted_at,
        tuple(f"{name}_bucket" for name in names.ttft), names.preemptions, names.started,
    ):  # fmt: skip
        assert seen.first(candidates), candidates
    assert seen.info("vllm:cache_config_info")[0]["kv_cache_size_tokens"] == "262144"


async def test_the_page_of_metrics_says_that_it_is_simulated(http: httpx.AsyncClient) -> None:
    """In a comment, so that no reader of vLLM's figures takes it for one of them."""
    assert (await http.get("/metrics")).text.startswith("# SIMULATED: ")


async def test_stop_strings_and_ignore_eos(client: openai.AsyncOpenAI) -> None:
    cut = await client.chat.completions.create(**chat(stop=["; no model"]))
    assert cut.choices[0].message.content == "This is a simulated answer in the name of rehearsal"
    assert cut.choices[0].finish_reason == "stop"
    long = await client.chat.completions.create(**chat(max_completion_tokens=900), extra_body={"ignore_eos": True})
    assert long.usage is not None
    assert long.usage.completion_tokens == 900


async def test_closing_the_connection_frees_the_engine() -> None:
    """A client that leaves, in prefill or in a stream, is out of the engine as soon as its connection is closed."""
    async with serving(profile_of(context=200_000)) as (app, url), httpx.AsyncClient(base_url=url, timeout=60) as http:
        async with http.stream("POST", "/v1/chat/completions", json=chat(max_tokens=5000, stream=True)) as reply:
            async for _ in reply.aiter_lines():
                break
        while (await scrape(url)).total("vllm:num_requests_running"):
            pass
        waiting = asyncio.create_task(http.post("/v1/completions", json={"prompt": "word " * 100_000, "max_tokens": 5}))
        while not (await scrape(url)).total("vllm:num_requests_running"):
            assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        while (await scrape(url)).total("vllm:num_requests_running"):
            assert not app.engine.waiting
        seen = await scrape(url)
        assert seen.total("vllm:num_requests_running") == 0
        assert seen.total("vllm:kv_cache_usage_perc") == 0
        assert seen.by("vllm:request_success_total", "finished_reason")["abort"] == 2


async def test_messages_stream_in_their_legal_order(http: httpx.AsyncClient) -> None:
    body = {"model": "rehearsal", "max_tokens": 20, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    reply = await http.post("/v1/messages", json=body)
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: ")]
    kinds = [event["type"] for event in events if event["type"] != "content_block_delta"]
    assert kinds == ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    assert events[-2]["usage"]["output_tokens"] == 20
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"
    whole = (await http.post("/v1/messages", json=body | {"stream": False})).json()
    assert whole["content"][0]["text"] == "".join(
        e["delta"]["text"] for e in events if e["type"] == "content_block_delta"
    )


async def test_embeddings_depend_on_the_text_alone(client: openai.AsyncOpenAI) -> None:
    answer = await client.embeddings.create(model="rehearsal", input=["one", "two", "one"])
    one, two, again = (item.embedding for item in answer.data)
    assert one == again != two
    assert sum(value * value for value in one) == pytest.approx(1, abs=1e-5)


async def test_small_routes_answer_as_vllm(http: httpx.AsyncClient) -> None:
    assert (await http.get("/health")).content == b""
    assert (await http.get("/version")).json()["version"].endswith("+sim")
    cards = (await http.get("/v1/models")).json()["data"]
    assert [card["id"] for card in cards] == ["rehearsal", "alias", "auto"]
    assert {(card["owned_by"], card["max_model_len"]) for card in cards} == {("sparkdash-sim", 8192)}
    tokens = (await http.post("/tokenize", json={"prompt": "Grüße, world"})).json()
    assert tokens["count"] == len(tokens["tokens"])
    counted = await http.post("/v1/messages/count_tokens", json={"messages": [{"role": "user", "content": "hi"}]})
    assert counted.json()["input_tokens"] > 0


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/v1/chat/completions", chat(model="nope"), 404, "The model `nope` does not exist"),
        ("/v1/chat/completions", chat(max_tokens=9000), 400, "max_tokens=9000 cannot be greater than max_model_len=8192"),
        ("/v1/chat/completions", chat(max_tokens=8190), 400, "This model's maximum context length is 8192 tokens. However, you requested"),
        ("/v1/completions", {"prompt": "word " * 9000}, 400, "maximum context length is 8192"),
        ("/v1/chat/completions", {"model": "rehearsal"}, 400, "messages: Field required"),
        ("/v1/chat/completions", chat(n=2), 400, "one choice"),
        ("/v1/chat/completions", chat(max_tokens=0.5), 400, "at least 1"),
        ("/v1/messages", chat(), 400, "max_tokens: Field required"),
        ("/v1/embeddings", {"input": [1, 2]}, 400, "string"),
        ("/v1/embeddings", {"input": "x", "dimensions": -(10**20)}, 400, "a number from 1 to 8192"),
    ],
)  # fmt: skip
async def test_mistakes_get_the_engines_error_object(
    http: httpx.AsyncClient, path: str, body: Any, status: int, says: str
) -> None:
    reply = await http.post(path, json=body)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, status)
    assert says in error["message"]
    assert error.keys() == {"message", "type", "param", "code"}


async def test_broken_json_and_unknown_places(http: httpx.AsyncClient) -> None:
    broken = await http.post("/v1/chat/completions", content=b'{"model":')
    assert (broken.status_code, broken.json()["error"]["param"]) == (400, "body.9")
    assert (await http.post("/v1/rerank", json={})).json() == {"detail": "Not Found"}
    assert (await http.get("/v1/chat/completions")).status_code == 405
    assert (await http.get("/health")).status_code == 200


async def test_the_wire_is_read_as_it_comes(site: Site) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(site[1].rsplit(":", 1)[1]))
    writer.write(b"nonsense\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(site[1].rsplit(":", 1)[1]))
    writer.write(
        b'POST /tokenize HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n8\r\n{"prompt\r\n'
    )
    await writer.drain()
    writer.write(b'6\r\n":"a"}\r\n0\r\n\r\n')
    answer = await reader.read()
    assert b'"count":1' in answer
    assert b"connection: close" in answer
    writer.close()


ASK = "Look. [[call read_note path=a note.txt]]"
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
FUNCTION = {"name": "read_note", "description": "Reads.", "strict": True, "parameters": SCHEMA}
CHAT: Any = [{"type": "function", "function": FUNCTION}]
RESPONSES: Any = [{"type": "function", **FUNCTION}]
MESSAGES: Any = [{"name": "read_note", "input_schema": SCHEMA}]
ARGUMENTS = {"path": "a note.txt"}
RETURNED = "no model runs here. The tool returned: line one l?ne two."
RESULT = "line one\nl\N{LATIN SMALL LETTER I WITH DIAERESIS}ne two"


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """An engine that thinks first and speculates, so that pieces have several tokens."""
    async with serving(profile_of(acceptance=(0.9, 0.9), reasoning_tokens=5, time_scale=500)) as (_, served):
        yield served


@pytest.fixture
async def caller(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    import openai

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as official:
        yield official


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chats_tool_is_called_and_its_result_said(caller: openai.AsyncOpenAI, stream: bool) -> None:
    turns: list[Any] = [{"role": "user", "content": ASK}]

    async def ask() -> Any:
        said: Any = {"model": "rehearsal", "messages": turns, "tools": CHAT}
        if not stream:
            return (await caller.chat.completions.create(**said)).choices[0]
        async with caller.chat.completions.stream(**said) as events:
            return (await events.get_final_completion()).choices[0]

    first = await ask()
    (call,) = first.message.tool_calls
    assert (first.finish_reason, first.message.content or "") == ("tool_calls", "")
    assert (call.function.name, json.loads(call.function.arguments)) == ("read_note", ARGUMENTS)
    turns += [first.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": RESULT}]
    second = await ask()
    assert second.finish_reason == "stop"
    assert second.message.tool_calls is None
    assert "line one l?ne two." in second.message.content


@pytest.mark.parametrize("stream", [False, True])
async def test_a_responses_tool_is_called_and_its_result_said(caller: openai.AsyncOpenAI, stream: bool) -> None:
    turns: list[Any] = [{"role": "user", "content": ASK}]

    async def ask() -> Any:
        said: Any = {"model": "rehearsal", "input": turns, "tools": RESPONSES}
        if not stream:
            return await caller.responses.create(**said)
        async with caller.responses.stream(**said) as events:
            return await events.get_final_response()

    (call,) = (await ask()).output
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "read_note", ARGUMENTS)
    turns += [call.model_dump(), {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}]
    assert RETURNED in (await ask()).output_text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_messages_tool_is_called_and_its_result_said(url: str, stream: bool) -> None:
    import anthropic

    turns: list[Any] = [{"role": "user", "content": [{"type": "text", "text": ASK}]}]
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as caller:

        async def ask() -> Any:
            said: Any = {"model": "rehearsal", "messages": turns, "tools": MESSAGES, "max_tokens": 500}
            if not stream:
                return await caller.messages.create(**said)
            async with caller.messages.stream(**said) as events:
                return await events.get_final_message()

        first = await ask()
        (call,) = first.content
        assert (first.stop_reason, call.name, call.input) == ("tool_use", "read_note", ARGUMENTS)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": RESULT}]}
        turns += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        second = await ask()
    assert second.stop_reason == "end_turn"
    assert RETURNED in second.content[0].text


async def test_an_answer_is_as_long_as_ordered(caller: openai.AsyncOpenAI) -> None:
    turns: Any = [{"role": "user", "content": "Go on. [[write 1234 tokens]]"}]
    answer = await caller.chat.completions.create(model="rehearsal", messages=turns)
    assert answer.usage is not None
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (1234, "stop")


USER = {"role": "user", "content": ASK}
CALL = OrderedCall("read_note", json.dumps(ARGUMENTS))


@pytest.mark.parametrize(
    ("body", "turns", "expected"),
    [
        ({"tools": CHAT}, [USER], PromptOrders(CALL)),
        ({"tools": CHAT}, [USER, {"role": "assistant"}], PromptOrders(CALL)),
        ({"tools": CHAT}, [USER, {"role": "tool", "content": "x"}, {"role": "assistant"}, {"role": "user", "content": "and?"}], PromptOrders()),
        ({"tools": CHAT}, [USER, {"role": "assistant"}, {"role": "tool", "content": "x"}, {"role": "user", "content": "context"}], PromptOrders(returned="x")),
        ({"tools": CHAT}, [{"role": "assistant"}, USER, {"role": "user", "content": "context"}], PromptOrders(CALL)),
        ({"tools": CHAT, "tool_choice": "none"}, [USER], PromptOrders()),
        ({"tools": [{"type": "function", "function": {"name": "other"}}]}, [USER], PromptOrders()),
        ({"tools": [None, {"type": "web_search"}, "odd"]}, [USER], PromptOrders()),
        ({}, [USER], PromptOrders()),
        ({"tools": CHAT}, [{"role": "user", "content": "[[call read_note]]"}], PromptOrders(OrderedCall("read_note", "{}"))),
        ({"tools": CHAT}, [{"role": "tool", "content": "x"}], PromptOrders()),
        ({}, [], PromptOrders()),
    ],
)  # fmt: skip
def test_orders_are_of_the_last_turn_and_of_offered_tools(body: Any, turns: Any, expected: PromptOrders) -> None:
    assert read_orders(body, turns) == expected


@pytest.mark.parametrize(
    ("kwargs", "thought"),
    [({}, 5), ({"enable_thinking": True}, 5), ({"enable_thinking": False}, 0), ({"thinking": False}, 0)],
)
async def test_thinking_is_on_unless_the_request_says_otherwise(
    url: str, kwargs: dict[str, bool], thought: int
) -> None:
    body = {"model": "rehearsal", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{url}/v1/chat/completions", json=body | {"chat_template_kwargs": kwargs})
    said = answer.json()["choices"][0]["message"]
    assert (bool(said["content"]), bool(said.get("reasoning"))) == (thought == 0, thought > 0)


async def test_streamed_and_whole_answers_are_the_same(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(**chat(), stream=True)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    whole = await client.chat.completions.create(**chat())
    assert whole.choices[0].message.content == text
    assert whole.choices[0].finish_reason == "stop"


async def test_official_client_streams_a_response(client: openai.AsyncOpenAI) -> None:
    stream = await client.responses.create(model="rehearsal", input="Tell me.", max_output_tokens=40, stream=True)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    final = events[-1].response
    assert final.status == "incomplete"
    assert final.usage.output_tokens == 40
    assert final.output_text == "".join(event.delta for event in events if event.type == "response.output_text.delta")
