"""Cost of a profile that does not come up: one load, whatever patience the asking client has by itself."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

HELLO: list[Any] = [{"role": "user", "content": "hi"}]


async def openai_chat(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x") as client:
        [chunk async for chunk in await client.chat.completions.create(model="bad", messages=HELLO, stream=True)]


async def openai_responses(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x") as client:
        await client.responses.create(model="bad", input="hi")


async def anthropic_messages(url: str) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="x") as client:
        await client.messages.create(model="bad", max_tokens=9, messages=HELLO)


async def ollama_chat(url: str) -> None:
    client = ollama.AsyncClient(host=url)
    try:
        await client.chat("bad", HELLO)
    finally:
        await client.close()


async def agent(url: str) -> None:
    """Obeys Retry-After and repeats a 5xx, as Claude Code, opencode and qwen-code do; waits for neither."""
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        for _ in range(5):
            answer = await client.post("/v1/chat/completions", json={"model": "bad", "messages": HELLO})
            if answer.status_code < 500 and "retry-after" not in answer.headers:
                break
    raise RuntimeError(f"{answer.status_code}: {answer.text}")


@pytest.mark.parametrize("ask", [openai_chat, openai_responses, anthropic_messages, ollama_chat, agent])
async def test_one_prompt_is_one_post_and_one_load(open_box: Any, ask: Callable[[str], Awaitable[None]]) -> None:
    """The failure's own words reach its user; who asks again hears how long the profile rests and what starts it now."""
    async with open_box("bad out-of-memory") as box:
        with pytest.raises(Exception, match=r"Tried to allocate 20\.00 GiB"):
            await ask(str(box.client.base_url))
        rows = box.bus.snapshot.recent
        assert [(row.status, row.error) for row in rows] == [(400, "out_of_memory")]
        status, error = await box.chat("bad")
        assert (status, error["code"]) == (400, "out_of_memory")
        assert "`sparkdash use bad` starts it now" in error["message"]
        assert len(box.bus.snapshot.swaps) == 1


async def test_twelve_agents_at_once_are_one_load(open_box: Any) -> None:
    """All join that load, and all hear why it failed."""
    async with open_box("bad out-of-memory") as box:
        told = await asyncio.gather(*(agent(str(box.client.base_url)) for _ in range(12)), return_exceptions=True)
        assert {str(error)[:4] for error in told} == {"400:"}
        assert all("Tried to allocate 20.00 GiB" in str(error) for error in told)
        assert len(box.bus.snapshot.recent) == 12
        assert len(box.bus.snapshot.swaps) == 1
