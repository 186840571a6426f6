"""The client towards engines: raw answers, honest errors, one retry where a pooled connection was stale."""

import asyncio
import json
from typing import Any

import pytest
from scripted import Hanging, answering, streaming

from sparkdash.errors import UpstreamError
from sparkdash.upstream import EngineRequest, Upstream


@pytest.mark.parametrize("begun", [False, True])
async def test_a_question_has_a_limit(upstream: Upstream, engine: Any, begun: bool) -> None:
    """vLLM asleep answers /health and hangs on requests."""
    engine.script = Hanging(*([b": begun\n\n"] if begun else ()))
    asking = upstream.generate(engine.url, "m", timeout_s=0.05) if begun else upstream.get(engine.url, timeout_s=0.05)
    with pytest.raises(UpstreamError) as caught:
        await asking
    assert caught.value.code == "engine_timeout"


async def test_a_stale_pooled_connection_is_retried_once(upstream: Upstream, engine: Any) -> None:
    """llama-server hangs up after an answer although it promised to keep the connection: the next POST goes out again."""
    hang_up = asyncio.Event()

    async def script(seen: Any, wire: Any) -> None:
        if seen.body == b"second" and engine.connections == 1:
            hang_up.set()
            wire.abort()
        else:
            await wire.answer(seen.body)

    engine.script = script
    bodies = []
    for body in (b"first", b"second"):
        with await upstream.open(EngineRequest("POST", engine.url + "/x"), body) as answer:
            bodies.append(await answer.read())
    assert hang_up.is_set()
    assert bodies == [b"first", b"second"]
    assert engine.connections == 2


@pytest.mark.parametrize("size", [9, 600_000])
async def test_what_one_left_unread_never_reaches_another(upstream: Upstream, engine: Any, size: int) -> None:
    """A whole answer that nobody took, small or above what is kept: the next has its own bytes and no others."""
    one_is_there = asyncio.Event()

    async def script(seen: Any, wire: Any) -> None:
        await wire.answer(seen.target.encode() * size)
        one_is_there.set()

    engine.script = script
    with await upstream.open(EngineRequest("GET", f"{engine.url}/1")):
        if size < 1000:  # the rest of the large one waits in the engine's socket
            await one_is_there.wait()
            await asyncio.sleep(0)
    async with asyncio.timeout(60):
        with await upstream.open(EngineRequest("GET", f"{engine.url}/2")) as answer:
            assert await answer.read() == b"/2" * size


async def test_an_upload_that_was_answered_early_leaves_no_connection_for_the_next(upstream: Upstream) -> None:
    """The engine would take the next request for the rest of the upload."""
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    url = "http://{}:{}/x".format(*server.sockets[0].getsockname())
    async with asyncio.timeout(20):
        for body in (bytes(32 * 2**20), b""):
            with await upstream.open(EngineRequest("POST", url), body) as answer:
                assert (answer.status, await answer.read()) == (413, b"")
    server.close()
    for writer in writers:
        writer.close()
    assert len(writers) == 2


async def test_generate_gives_all_text(upstream: Upstream, engine: Any) -> None:
    deltas = '{"role":"assistant","content":""}', '{"reasoning":"a"}', '{"reasoning_content":"b"}', '{"content":"c"}'
    chunks = [b'data: {"choices":[{"delta":%b}]}\n\n' % delta.encode() for delta in deltas]
    engine.script = streaming(*chunks, b"data: [DONE]\n\n")
    assert await upstream.generate(engine.url, "m", timeout_s=60) == "abc"
    assert engine.seen[0].target == "/v1/chat/completions"
    assert b'"model": "m"' in engine.seen[0].body


async def test_generate_raises_the_engines_own_words(upstream: Upstream, engine: Any) -> None:
    engine.script = answering(b'{"error":{"message":"no chat template"}}', status=400)
    with pytest.raises(UpstreamError, match="answered 400: no chat template"):
        await upstream.generate(engine.url, "m", timeout_s=60)
    engine.script = streaming(b'data: {"error": {"message": "EngineCore died", "code": 500}}\n\n')
    with pytest.raises(UpstreamError, match="EngineCore died") as caught:
        await upstream.generate(engine.url + "/v1/chat/completions", "m", timeout_s=60)
    assert caught.value.code == "engine_refused"


@pytest.mark.parametrize(("reason", "generates"), [("length", True), ("stop", False), (None, False)])
async def test_an_answer_without_text_counts_where_its_length_cut_it(
    upstream: Upstream, engine: Any, reason: str | None, generates: bool
) -> None:
    """Reasoning that the engine keeps to itself, or a model with random weights; an end of its own without a word is no answer."""
    event = {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": reason}]}
    engine.script = streaming(b"data: " + json.dumps(event).encode() + b"\n\ndata: [DONE]\n\n")
    if generates:
        assert await upstream.generate(engine.url, "m", timeout_s=60) == ""
    else:
        with pytest.raises(UpstreamError, match="its answer was empty") as caught:
            await upstream.generate(engine.url, "m", timeout_s=60)
        assert caught.value.code == "engine_mute"
