"""Streams pass unbuffered, unchanged and counted, as fast as their clients take them."""

import asyncio
import json
import random
from typing import Any

import pytest
from recorded_streams import PATHS, cut, dialect_of
from scripted import streaming

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.request import RequestState
from sparkdash.gateway.protocol.route import Dialect

ASKED = {"model": "alpha", "stream": True, "stream_options": {"include_usage": True}}
COUNTS = {  # file: (prompt, cached, completion), as its last frames say
    "llama.cpp-0c1e57098-base-chat-stream": (23, 22, 80),
    "llama.cpp-0c1e57098-base-chat-stream-timings": (23, 22, 40),
    "llama.cpp-0c1e57098-base-chat-tool-stream": (116, 115, 20),
    "llama.cpp-0c1e57098-base-completions-stream": (3, 2, 40),
    "llama.cpp-0c1e57098-base-messages-stream": (23, 22, 80),
    "llama.cpp-0c1e57098-base-responses-stream": (23, 22, 80),
    "vllm-0.32.0-base-chat-stream-contusage": (17, None, 12),
    "vllm-0.32.0-base-chat-stream-logprobs": (20, None, 10),
    "vllm-0.32.0-base-chat-stream-usage": (17, None, 80),
    "vllm-0.32.0-base-chat-tool-stream": (110, None, 33),
    "vllm-0.32.0-base-completions-stream": (3, None, 40),
    "vllm-0.32.0-base-messages-stream": (17, None, 80),
    "vllm-0.32.0-base-messages-tool-stream": (110, None, 33),
    "vllm-0.32.0-base-responses-stream": (17, 0, 80),
    "vllm-0.32.0-base-responses-tool-stream": (110, 0, 33),
    "vllm-0.32.0-draft-chat-stream-usage": (17, None, 80),
}


@pytest.mark.parametrize("name", sorted(COUNTS))
async def test_a_recorded_stream_passes_unchanged(house: Any, recorded_body: Any, name: str) -> None:
    recorded = recorded_body(name)
    house.engine.script = streaming(*cut(recorded, random.Random(name)))
    async with house.client.stream("POST", PATHS[dialect_of(name)], json=ASKED) as reply:
        got = b"".join([chunk async for chunk in reply.aiter_raw()])
    assert got == recorded
    assert reply.headers["content-type"] == "text/event-stream"
    assert reply.headers["x-accel-buffering"] == "no"
    row = await house.ended()
    assert row.state is RequestState.DONE
    assert (row.prompt_tokens, row.cached_tokens, row.completion_tokens) == COUNTS[name]
    assert row.ttft_s is not None
    assert row.ttft_s > 0
    assert row.finish_reason in ("length", "tool_calls", "max_tokens", "tool_use", None)


@pytest.mark.parametrize("route", [*PATHS.values(), "/v1/audio/speech"])
async def test_nonsense_passes_unchanged(house: Any, route: str) -> None:
    dice = random.Random(route)
    words = (b"data: ", b'"choices":[],"usage":{', b"[DONE]", b"\r\n\r\n", b"\n\n", b"event: error", "ünï😀".encode())
    nonsense = b"".join(dice.choice((*words, dice.randbytes(200))) for _ in range(500))
    house.engine.script = streaming(*cut(nonsense, dice))
    assert (await house.client.post(route, json=ASKED)).content == nonsense


@pytest.mark.parametrize("name", ["chat-stream-usage", "completions-stream"])
@pytest.mark.parametrize("options", [{}, {"stream_options": None}, {"stream_options": {"include_usage": False}}])
async def test_a_client_that_does_not_ask_for_counts_gets_none(
    house: Any, recorded_body: Any, name: str, options: dict[str, Any]
) -> None:
    """The engine is asked on our behalf: the row has its counts, and the client every byte but the chunk that brings them."""
    recorded = recorded_body(f"vllm-0.32.0-base-{name}")
    house.engine.script = streaming(*cut(recorded, random.Random(name)))
    reply = await house.client.post(PATHS[dialect_of(name)], json={"model": "alpha", "stream": True, **options})
    frames = recorded.split(b"\n\n")
    assert b'"choices":[],"usage":{' in frames[-3]
    assert reply.content == b"\n\n".join(frames[:-3] + frames[-2:])
    sent = json.loads(house.engine.seen[0].body)
    assert sent == {"model": "alpha", "stream": True, "stream_options": {"include_usage": True}}
    assert (await house.ended()).completion_tokens == COUNTS[f"vllm-0.32.0-base-{name}"][2]


@pytest.mark.parametrize(("route", "profile", "more"), [
    ("chat", "alpha", {"stream_options": {"continuous_usage_stats": True}}), ("chat", "alpha", {"stream": False}),
    ("chat", "alpha", {"stream_options": "odd"}), ("chat", "gguf", {}), ("responses", "alpha", {}),
    ("messages", "alpha", {}),
])  # fmt: skip
async def test_an_engine_is_asked_for_counts_only_where_that_is_safe(
    house: Any, route: str, profile: str, more: dict[str, Any]
) -> None:
    """Not where a client has own words for it, nor where the protocol or the engine counts by itself: the body stays as it is."""
    house.catalog.profiles["gguf"] = Profile(name="gguf", engine=EngineKind.LLAMACPP)
    frames = b'data: {"choices":[],"usage":{"completion_tokens":1}}\n\n'
    house.engine.script = streaming(frames)
    reply = await house.client.post(PATHS[Dialect(route)], json={"model": profile, "stream": True, **more})
    assert json.loads(house.engine.seen[0].body) == {"model": profile, "stream": True, **more}
    assert reply.content == frames


def test_every_recorded_stream_has_its_counts(streams: list[str]) -> None:
    assert set(streams) == COUNTS.keys()


async def test_a_frame_arrives_before_the_next_is_made(house: Any) -> None:
    """Nothing is held back: the engine writes its second frame only once the client has read the first."""
    read = asyncio.Event()

    async def script(_seen: Any, wire: Any) -> None:
        await wire.head()
        await wire.chunk(b'data: {"choices":[{"delta":{"content":"one"}}]}\n\n')
        await read.wait()
        await wire.chunk(b"data: [DONE]\n\n")
        await wire.end()

    house.engine.script = script
    async with house.client.stream("POST", "/v1/chat/completions", json={"model": "alpha", "stream": True}) as reply:
        chunks = reply.aiter_raw()
        assert b"one" in await anext(chunks)
        row = await house.in_state(RequestState.STREAMING)
        assert row.ttft_s is not None
        read.set()
        assert await anext(chunks) == b"data: [DONE]\n\n"
    await house.ended()


async def test_a_slow_client_holds_the_engine_back(house: Any) -> None:
    """Backpressure: while the client reads nothing, the gateway takes in no more than its buffers hold."""
    stuck, written = asyncio.Event(), 0
    piece = b"data: " + b"x" * 65_528 + b"\n\n"

    async def script(_seen: Any, wire: Any) -> None:
        nonlocal written
        await wire.head()
        for _ in range(1600):  # 100 MiB in all
            writing = asyncio.create_task(wire.chunk(piece))
            done, _ = await asyncio.wait({writing}, timeout=1.0)
            if not done:
                stuck.set()
            await writing
            written += len(piece)
        await wire.end()

    house.engine.script = script
    async with house.client.stream("POST", "/v1/chat/completions", json={"model": "alpha", "stream": True}) as reply:
        chunks = reply.aiter_raw()
        await anext(chunks)
        await asyncio.wait_for(stuck.wait(), 60)
        assert written < 40 * 1024 * 1024  # both directions' socket buffers, not the stream
    await house.ended()
