"""Orders in a prompt: a call of an offered tool, its result said again, and an answer's length."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from simulated import serving

from sparkdash.domain.profile import Profile
from sparkdash.sim.prompt import OrderedCall, PromptOrders, read_orders

pytestmark = pytest.mark.usefixtures("openai_sdk", "anthropic_sdk")

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
async def url(make_profile: Callable[..., Profile]) -> AsyncIterator[str]:
    """An engine that thinks first and speculates, so that pieces have several tokens."""
    async with serving(make_profile(acceptance=(0.9, 0.9), reasoning_tokens=5, time_scale=500)) as (_, served):
        yield served


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chats_tool_is_called_and_its_result_said(url: str, stream: bool) -> None:
    import openai

    turns: list[Any] = [{"role": "user", "content": ASK}]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:

        async def ask() -> Any:
            if not stream:
                return await client.chat.completions.create(model="rehearsal", messages=turns, tools=CHAT)
            async with client.chat.completions.stream(model="rehearsal", messages=turns, tools=CHAT) as events:
                return await events.get_final_completion()

        first = (await ask()).choices[0]
        (call,) = first.message.tool_calls
        assert (first.finish_reason, first.message.content or "") == ("tool_calls", "")
        assert (call.function.name, json.loads(call.function.arguments)) == ("read_note", ARGUMENTS)
        turns += [
            first.message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": RESULT},
        ]
        second = (await ask()).choices[0]
    assert second.finish_reason == "stop"
    assert second.message.tool_calls is None
    assert "line one l?ne two." in second.message.content


@pytest.mark.parametrize("stream", [False, True])
async def test_a_responses_tool_is_called_and_its_result_said(url: str, stream: bool) -> None:
    import openai

    turns: list[Any] = [{"role": "user", "content": ASK}]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:

        async def ask() -> Any:
            if not stream:
                return await client.responses.create(model="rehearsal", input=turns, tools=RESPONSES)
            async with client.responses.stream(model="rehearsal", input=turns, tools=RESPONSES) as events:
                return await events.get_final_response()

        (call,) = (await ask()).output
        assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "read_note", ARGUMENTS)
        turns += [call.model_dump(), {"type": "function_call_output", "call_id": call.call_id, "output": RESULT}]
        assert RETURNED in (await ask()).output_text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_messages_tool_is_called_and_its_result_said(url: str, stream: bool) -> None:
    import anthropic

    turns: list[Any] = [{"role": "user", "content": [{"type": "text", "text": ASK}]}]
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:

        async def ask() -> Any:
            said: Any = {"model": "rehearsal", "messages": turns, "tools": MESSAGES, "max_tokens": 500}
            if not stream:
                return await client.messages.create(**said)
            async with client.messages.stream(**said) as events:
                return await events.get_final_message()

        first = await ask()
        (call,) = first.content
        assert (first.stop_reason, call.name, call.input) == ("tool_use", "read_note", ARGUMENTS)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": RESULT}]}
        turns += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        second = await ask()
    assert second.stop_reason == "end_turn"
    assert RETURNED in second.content[0].text


async def test_an_answer_is_as_long_as_ordered(url: str) -> None:
    import openai

    turns: Any = [{"role": "user", "content": "Go on. [[write 1234 tokens]]"}]
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        answer = await client.chat.completions.create(model="rehearsal", messages=turns)
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
