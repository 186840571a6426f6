"""A swap of 400 s, and longer ones, before clients with their own patience: who hears enough to wait, and who does not.

The seconds are the event loop's, which leaps over those in which nothing happens; the sockets, the SDKs and their time-outs
are real. SDKs run themselves; clients that cannot run here are played by what each was recorded to send and by how long
each was measured to wait (17 clients before a model that loaded for 700 s, 2026-11).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from leaping import LeapingLoop
from scripted import engine_on_a_socket

from sparkdash.domain.engine import LoadProgress
from sparkdash.domain.event import SwapChanged
from sparkdash.domain.swap import Swap, SwapCause, SwapPhase
from sparkdash.gateway.relay import passthrough
from sparkdash.settings import Settings

if TYPE_CHECKING:
    import anthropic
    import ollama
    import openai


RECORDED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data" / "client-requests.json").read_text()
)


# --- clients ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Patience:
    """Seconds that a client waits: for the first byte, for any byte after it, for an event, for one with words in it."""

    first: float = 600
    byte: float = 600
    event: float = inf
    words: float = inf


NODE = Patience(300, 300)
MEASURED = {
    "aider": Patience(),
    "anthropic-python": Patience(),
    "claude-code": Patience(361, 300, words=600),
    "cline-cli": NODE,
    "codex": Patience(inf, 300, event=300),
    "continue-cli": Patience(600, inf),
    "copilot-cli": Patience(600, inf),
    "litellm": Patience(),
    "llm-simonw": Patience(),
    "node-sdks": NODE,
    "openai-python": Patience(),
    "opencode": NODE,
    "pi": Patience(600, inf),
    "qwen-code": Patience(120, inf),
}
STREAMS = {
    (one["client"], one["path"]): one
    for one in RECORDED
    if isinstance(one["body"], dict) and one["body"].get("stream") is True
}
WORDS = re.compile(r'"(?:thinking|text|content|reasoning_content)": ?"[^"]')


class GaveUp(Exception):  # noqa: N818 - what a client does
    """The client's patience is over."""


async def sent_by(client: httpx.AsyncClient, one: dict[str, Any], patience: Patience) -> str:
    """The end of the answer to a recorded request, unless the client gives up before.

    Raises:
        GaveUp: with the seconds that it waited.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    body = one["body"]
    heard = dict.fromkeys(("first", "byte", "event", "words"), begun)
    limits = {"first": patience.first, "byte": inf, "event": inf, "words": patience.words}
    last = rest = ""
    reading = client.stream("POST", one["path"], json=body, headers={"user-agent": one["user_agent"]}, timeout=None)
    try:
        async with asyncio.timeout(None if patience.first == inf else patience.first) as deadline, reading as reply:
            assert reply.status_code == 200
            limits |= {"first": inf, "byte": patience.byte, "event": patience.event}
            async for piece in reply.aiter_text():
                now = loop.time()
                heard["byte"] = now
                *frames, rest = (rest + piece).replace("\r\n", "\n").split("\n\n")
                if any(not frame.startswith(":") for frame in frames):
                    heard["event"] = now
                if any(map(WORDS.search, frames)):
                    heard["words"] = now
                due = min(heard[what] + limit for what, limit in limits.items())
                deadline.reschedule(None if due == inf else due)
                last = frames[-1] if frames else last
    except TimeoutError:
        raise GaveUp(round(loop.time() - begun)) from None
    return last


async def everyone(house: Any, clients: dict[str, Patience]) -> set[str]:
    """Clients that gave up, when each sends all it was recorded to stream. The others had an answer with its end."""

    async def play(one: dict[str, Any]) -> str | None:
        try:
            last = await sent_by(house.client, one, clients[one["client"]])
        except GaveUp:
            return str(one["client"])
        assert "[DONE]" in last or "message_stop" in last or "response.completed" in last, (one["case"], last)
        return None

    gone = await asyncio.gather(*(play(one) for one in STREAMS.values() if one["client"] in clients))
    return set(filter(None, gone))


async def load_goes_on(house: Any) -> None:
    """One percent more every nine seconds."""
    for percent in range(100):
        progress = LoadProgress(stage="weights", fraction=percent / 100)
        swap = Swap(
            id="s", target="alpha", evict=(), cause=SwapCause.REQUEST, phase=SwapPhase.LOAD, started_at=0.0,
            phase_at=0.0, progress=progress,
        )  # fmt: skip
        house.bus.publish(SwapChanged(swap=swap))
        await asyncio.sleep(9)


# --- the house --------------------------------------------------------------------------------------------------


@pytest.fixture
def loading(tools: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that runs what it is given before a gateway whose model needs `load_s` to come up."""
    monkeypatch.setattr(
        "sparkdash.upstream.client.CONNECT_S", 60.0
    )  # a leap too early, on a busy box, is no engine that is away

    def run(load_s: float, calls: Callable[[Any], Awaitable[Any]], **settings: Any) -> Any:
        async def main() -> Any:
            asked = {"model_names": {"*": "alpha"}, "slow_client_s": 0, **settings}
            async with AsyncExitStack() as stack:
                engine = await stack.enter_async_context(engine_on_a_socket())
                house = await stack.enter_async_context(tools.living_house(engine, Settings(**asked)))
                await stack.enter_async_context(tools.simulated_engine(house))
                house.supervisor.gate.clear()
                asyncio.get_running_loop().call_later(load_s, house.supervisor.gate.set)
                return await calls(house)

        with asyncio.Runner(loop_factory=LeapingLoop) as runner:
            return runner.run(main())

    return run


def test_a_swap_of_400_s_is_survived_by_all(loading: Any) -> None:
    """With the time-outs that they come with."""
    assert loading(400, lambda house: everyone(house, MEASURED)) == set()


def test_who_waits_longer(loading: Any) -> None:
    """All but Claude Code, which takes no ping for an answer: it waits where it is told how far the load is."""
    one_of_each_patience = {patience: name for name, patience in MEASURED.items()}.values()
    clients = {name: MEASURED[name] for name in one_of_each_patience}
    assert loading(700, lambda house: everyone(house, clients)) == {"claude-code"}

    async def told(house: Any) -> set[str]:
        progress = asyncio.create_task(load_goes_on(house))
        try:
            return await everyone(house, {"claude-code": MEASURED["claude-code"]})
        finally:
            progress.cancel()

    assert loading(700, told, progress_as_reasoning=True) == set()


def test_what_they_would_do_without_a_word(loading: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure of the test above: held in silence, these give up on a load of 400 s, as they were measured to."""
    impatient = {name for name, patience in MEASURED.items() if patience.first < 400}
    assert loading(400, lambda house: everyone(house, MEASURED), hold_headers_s=86400) == impatient
    monkeypatch.setattr(passthrough, "KEEP_ALIVE_S", 86400.0)
    impatient = {name for name, patience in MEASURED.items() if min(patience.byte, patience.event) < 400}
    assert loading(400, lambda house: everyone(house, MEASURED)) == impatient


# --- SDKs -------------------------------------------------------------------------------------------------------

TURN: list[Any] = [{"role": "user", "content": "Say something."}]


async def openai_chat(sdk: openai.AsyncOpenAI) -> str:
    async with sdk.chat.completions.stream(model="alpha", messages=TURN) as stream:
        return (await stream.get_final_completion()).choices[0].message.content or ""


async def openai_chat_held(sdk: openai.AsyncOpenAI) -> str:
    return (await sdk.chat.completions.create(model="alpha", messages=TURN)).choices[0].message.content or ""


async def openai_completion(sdk: openai.AsyncOpenAI) -> str:
    stream = await sdk.completions.create(model="alpha", prompt="Say", stream=True)
    return "".join([chunk.choices[0].text async for chunk in stream if chunk.choices])


async def openai_response(sdk: openai.AsyncOpenAI) -> str:
    async with sdk.responses.stream(model="alpha", input="Say something.") as stream:
        return (await stream.get_final_response()).output_text


async def anthropic_message(sdk: anthropic.AsyncAnthropic) -> str:
    async with sdk.messages.stream(model="alpha", max_tokens=50, messages=TURN) as stream:
        return await stream.get_final_text()


async def anthropic_message_held(sdk: anthropic.AsyncAnthropic) -> str:
    return (await sdk.messages.create(model="alpha", max_tokens=50, messages=TURN)).content[0].text


async def ollama_chat(sdk: ollama.AsyncClient) -> str:
    return "".join([part.message.content or "" async for part in await sdk.chat("alpha", TURN, stream=True)])


async def ollama_generate_held(sdk: ollama.AsyncClient) -> str:
    return (await sdk.generate("alpha", "Say something.")).response


OPENAI = (openai_chat, openai_chat_held, openai_completion, openai_response)
ANTHROPIC = (anthropic_message, anthropic_message_held)
OLLAMA = (ollama_chat, ollama_generate_held)


def sdk_of(house: Any, call: Any, **asked: Any) -> Any:
    """A client of the SDK that the call is for."""
    import anthropic
    import ollama
    import openai

    if call in OLLAMA:
        return ollama.AsyncClient(host=house.base)
    if call in ANTHROPIC:
        return anthropic.AsyncAnthropic(base_url=house.base, api_key="x", **asked)
    return openai.AsyncOpenAI(base_url=house.base + "/v1", api_key="x", **asked)


async def are_answered_at_once(house: Any, *calls: Any, **asked: Any) -> bool:
    """Whether each call has its text, and was posted once: no SDK had to try again."""
    sdks = [sdk_of(house, call, **asked) for call in calls]
    texts = await asyncio.gather(*(call(sdk) for call, sdk in zip(calls, sdks, strict=True)))
    for sdk in sdks:
        await sdk.close()
    return all(texts) and len(house.supervisor.leases) == len(calls)


def test_the_sdks_survive_a_swap_of_400_s_with_their_own_time_outs(loading: Any) -> None:
    """Streams and held answers."""
    assert loading(400, lambda house: are_answered_at_once(house, *OPENAI, *ANTHROPIC, *OLLAMA))


def test_white_space_keeps_an_impatient_client_of_whole_answers(loading: Any) -> None:
    """With LlamaIndex's time-out of 60 s, over 700 s of loading."""
    asked: dict[str, Any] = {"timeout": 60, "default_headers": {"x-sparkdash-keep-alive": "whitespace"}}
    held = (openai_chat_held, anthropic_message_held)
    assert loading(700, lambda house: are_answered_at_once(house, *held, **asked))


def test_the_time_outs_are_the_sdks_own(loading: Any) -> None:
    """The measure of the tests above: where its time-out is shorter than the silence, an SDK gives up in the same clock."""
    import openai

    async def call(house: Any) -> float:
        begun = asyncio.get_running_loop().time()
        async with sdk_of(house, openai_chat_held, max_retries=0, timeout=300) as sdk:
            with pytest.raises(openai.APITimeoutError):
                await openai_chat_held(sdk)
        return asyncio.get_running_loop().time() - begun

    assert loading(400, call) == pytest.approx(300, abs=30)
