"""Waiting for an engine: a true status while that is possible, keep-alives after it, and failure in the stream's own words."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from recorded_streams import PATHS
from scripted import answering, streaming

from sparkdash.domain.engine import Liveness, LivenessState, LoadProgress, RepairStep
from sparkdash.domain.event import EngineChanged, SwapChanged
from sparkdash.domain.request import RequestState
from sparkdash.domain.swap import Swap, SwapCause, SwapPhase
from sparkdash.errors import AdmissionError, EngineError
from sparkdash.gateway.relay import passthrough
from sparkdash.settings import Settings

FRAME = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n'
BROKEN = EngineError("alpha did not come up: out of memory.", code="out_of_memory", phase="load", log_tail=("oom",))


@pytest.fixture
def waiting(waiting: Any) -> Any:
    """A house that holds every request back, before an engine that would answer at once."""
    waiting.engine.script = streaming(FRAME)
    return waiting


TOO_LONG = (
    b'{"error":{"code":400,"message":"request (6002 tokens) exceeds the available context size (4096 tokens), try '
    b'increasing it","type":"exceed_context_size_error","n_prompt_tokens":6002,"n_ctx":4096}}'
)
"""llama.cpp's own, recorded."""


def loading(house: Any) -> None:
    """alpha is coming up; the estimate is of a moment to come, so that nothing of it has passed yet."""
    now = time.time() + 1000
    swap = Swap(
        id="s", target="alpha", evict=(), cause=SwapCause.REQUEST, phase=SwapPhase.LOAD, started_at=now - 60,
        phase_at=now - 50, progress=LoadProgress(stage="weights", fraction=0.62),
        eta_s=100.5, eta_low_s=80.5, eta_high_s=130.5, eta_at=now,
    )  # fmt: skip
    house.bus.publish(SwapChanged(swap=swap))


def asking(house: Any, path: str = "/v1/chat/completions", **headers: str) -> Any:
    return house.client.stream("POST", path, json={"model": "alpha", "stream": True}, headers=headers)


async def first_frames(pieces: AsyncIterator[bytes]) -> list[bytes]:
    """The frames of a stream up to a whole one."""
    data = await anext(pieces)
    while not data.endswith(b"\n\n"):
        data += await anext(pieces)
    return data.removesuffix(b"\n\n").split(b"\n\n")


async def waited(house: Any, path: str = "/v1/chat/completions", **headers: str) -> list[bytes]:
    """The frames of a stream whose engine comes once the first of them are there."""
    async with asking(house, path, **headers) as reply:
        pieces = reply.aiter_raw()
        frames = await first_frames(pieces)
        house.supervisor.gate.set()
        return frames + b"".join([piece async for piece in pieces]).removesuffix(b"\n\n").split(b"\n\n")


def told_in(frames: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(frame.split(b"data: ")[1]) for frame in frames if frame]


class TestImpatient:
    """Headers go out at once."""

    @pytest.fixture
    def settings(self) -> Settings:
        return Settings(hold_headers_s=0)

    @pytest.fixture(autouse=True)
    def often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(passthrough, "KEEP_ALIVE_S", 0.02)

    async def test_a_waiting_chat_gets_whole_empty_chunks(self, waiting: Any) -> None:
        """Empty deltas without a role (helpers add roles up), then the engine's stream unchanged."""
        async with asking(waiting) as reply:
            assert reply.status_code == 200
            assert reply.headers["content-type"].startswith("text/event-stream")
            pieces = reply.aiter_raw()
            first, *_ = await first_frames(pieces)
            chunk = json.loads(first.removeprefix(b"data: "))
            assert chunk["object"] == "chat.completion.chunk"
            assert (chunk["model"], chunk["choices"][0]["index"]) == ("alpha", 0)
            assert chunk["choices"][0]["delta"] == {"content": ""}
            assert await anext(pieces) == first + b"\n\n"
            waiting.supervisor.gate.set()
            assert (b"".join([piece async for piece in pieces])).endswith(FRAME)
        assert (await waiting.ended()).state is RequestState.DONE

    @pytest.mark.parametrize(("path", "start"), [
        ("/v1/completions", b'data: {"id":"cmpl-'), ("/v1/messages", b'event: ping\ndata: {"type":"ping"}'),
        ("/v1/responses", b'event: response.created\ndata: {"type":"response.created","sequence_number":0,'),
        ("/v1/audio/speech", b":"),
    ])  # fmt: skip
    async def test_each_protocol_waits_in_its_own_words(self, waiting: Any, path: str, start: bytes) -> None:
        """The first frame is one that the protocol's clients accept before any other."""
        assert (await waited(waiting, path))[0].startswith(start)

    @pytest.mark.parametrize(("headers", "body", "batch"), [
        ({}, {}, False), ({"x-sparkdash-priority": "batch"}, {}, True),
        ({"x-sparkdash-priority": "Interactive"}, {"service_tier": "flex"}, False),
        ({}, {"service_tier": "flex"}, True), ({}, {"service_tier": "auto"}, False),
    ])  # fmt: skip
    async def test_a_client_may_let_others_go_first(
        self, waiting: Any, headers: dict[str, str], body: dict[str, str], batch: bool
    ) -> None:
        """By our header, else by OpenAI's service tier."""
        waiting.supervisor.gate.set()
        asked = {"model": "alpha", "stream": True, **body}
        await waiting.client.post("/v1/chat/completions", json=asked, headers=headers)
        assert [ask["batch"] for ask in waiting.supervisor.asks] == [batch]

    @pytest.mark.parametrize(
        ("path", "body", "headers", "autocomplete"),
        [
            ("/v1/completions", {"prompt": "def f(", "suffix": "return 1"}, {}, True),
            ("/v1/completions", {"prompt": "def f(", "suffix": ""}, {}, False),
            ("/v1/completions", {"prompt": "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>"}, {}, True),
            ("/v1/completions", {"prompt": "<\uff5cfim\u2581begin\uff5c>a"}, {}, True),
            ("/v1/completions", {"prompt": "[SUFFIX]b[PREFIX]a"}, {}, True),
            ("/v1/completions", {"prompt": "x", "suffix": "y"}, {"x-sparkdash-priority": "interactive"}, False),
            ("/infill", {"input_prefix": "a", "input_suffix": "b"}, {}, True),
            ("/v1/chat/completions", {"messages": [], "suffix": "y"}, {}, False),
            ("/v1/chat/completions", {"messages": []}, {"x-sparkdash-priority": "Autocomplete"}, True),
        ],
    )
    async def test_what_an_editor_sends_while_one_types_is_known(
        self, waiting: Any, path: str, body: dict[str, Any], headers: dict[str, str], autocomplete: bool
    ) -> None:
        waiting.supervisor.gate.set()
        await waiting.client.post(path, json={"model": "alpha", **body}, headers=headers)
        assert [ask["autocomplete"] for ask in waiting.supervisor.asks] == [autocomplete]

    async def test_an_unknown_priority_is_refused(self, waiting: Any) -> None:
        reply = await waiting.client.post(
            "/v1/chat/completions", json={"model": "alpha"}, headers={"x-sparkdash-priority": "urgent"}
        )
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_priority")
        assert "interactive" in reply.json()["error"]["hint"]
        assert waiting.supervisor.leases == []

    @pytest.mark.parametrize("ask", ["setting", "header", "nobody"])
    async def test_a_chat_is_told_how_far_its_engine_is_if_somebody_asked(
        self, waiting: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch, ask: str
    ) -> None:
        """As reasoning text, marked as ours, once per change; otherwise the chunks stay empty."""
        loading(waiting)
        if ask == "setting":
            monkeypatch.setitem(settings.__dict__, "progress_as_reasoning", True)
        headers = {"x-sparkdash-progress": "reasoning"} if ask == "header" else {}
        async with asking(waiting, **headers) as reply:
            pieces = reply.aiter_raw()
            first, second = (await first_frames(pieces))[0], await anext(pieces)
            waiting.supervisor.gate.set()
        deltas = [event["choices"][0]["delta"] for event in told_in([first, second])]
        told = {"reasoning_content": "[sparkdash] alpha: weights 62 % · about 1m40s left (1m20s to 2m10s)\n"}
        assert deltas == [{"content": ""} if ask == "nobody" else told, {"content": ""}]

    async def test_a_stream_that_is_kept_alive_by_comments_is_told_in_them(self, waiting: Any) -> None:
        loading(waiting)
        first, *_ = await waited(waiting, "/v1/audio/speech")
        assert first.decode() == ": alpha: weights 62 % · about 1m40s left (1m20s to 2m10s)"

    async def test_a_waiting_stream_is_told_what_is_done_about_a_stuck_engine(self, waiting: Any) -> None:
        now = waiting.app._deps.clock()
        live = Liveness(state=LivenessState.STUCK, why="", since=now - 130, step=RepairStep.CANCEL, step_since=now - 40)
        engine = waiting.bus.snapshot.engines["alpha"].replace(liveness=live)
        waiting.bus.publish(EngineChanged(engine=engine))
        first, *_ = await waited(waiting, **{"x-sparkdash-progress": "reasoning"})
        assert b"engine stuck: requests cancelled, looking again 4" in first

    async def test_a_responses_stream_that_breaks_off_after_a_wait_ends_under_its_own_id(
        self, waiting: Any, recorded_body: Any
    ) -> None:
        """The failure has the id that the client knows and the number that comes next."""
        recorded = recorded_body("vllm-0.32.0-base-responses-stream")
        waiting.engine.script = streaming(recorded[:9000], dies=True)
        told = told_in(await waited(waiting, "/v1/responses"))
        assert [event["sequence_number"] for event in told] == list(range(len(told)))
        assert [event["type"] for event in told[-2:]] == ["response.failed", "error"]
        assert told[-2]["response"]["id"] == told[0]["response"]["id"]

    async def test_messages_are_told_in_a_thinking_block_if_somebody_asked(
        self, waiting: Any, recorded_body: Any
    ) -> None:
        """Claude Code hears nothing else for ten minutes: opened once, closed when the engine begins, whose blocks follow."""
        loading(waiting)
        waiting.engine.script = streaming(recorded_body("vllm-0.32.0-base-messages-stream"))
        told = told_in(await waited(waiting, "/v1/messages", **{"x-sparkdash-progress": "reasoning"}))
        words = [event["type"] for event in told if event["type"] != "ping"]
        assert words[:4] == ["message_start", "content_block_start", "content_block_delta", "content_block_stop"]
        assert told[2]["delta"]["thinking"].startswith("[sparkdash] alpha: weights 62 %")
        assert words.count("message_start") == words.count("message_stop") == 1
        starts = [event["index"] for event in told if event["type"] == "content_block_start"]
        assert starts == list(range(len(starts)))
        assert (await waiting.ended()).prompt_tokens == 17

    async def test_a_load_that_fails_is_told_once_and_for_all(self, waiting: Any) -> None:
        """Chat: the words on which agents stop posting, the reason for programs, then [DONE]."""
        waiting.supervisor.error = BROKEN
        *_, error, done = await waited(waiting)
        told = json.loads(error.removeprefix(b"data: "))["error"]
        assert (told["type"], told["code"], told["reason"]) == (*["invalid_request_error"] * 2, "out_of_memory")
        assert "did not come up" in told["message"]
        assert done == b"data: [DONE]"
        assert (await waiting.ended()).error == "out_of_memory"

    async def test_a_failed_load_ends_responses_and_messages_in_their_own_way(self, waiting: Any) -> None:
        """response.failed with `invalid_prompt`, numbered on, then `error`; `event: error` for messages; then the end."""
        waiting.supervisor.error = BROKEN
        *events, error = told_in(await waited(waiting, "/v1/responses"))
        assert [e["sequence_number"] for e in (*events, error)] == list(range(len(events) + 1))
        assert len({e["response"]["id"] for e in events}) == 1
        assert (events[-1]["type"], events[-1]["response"]["error"]["code"]) == ("response.failed", "invalid_prompt")
        assert (error["type"], error["error"]["code"]) == ("error", "invalid_prompt")
        waiting.supervisor.gate.clear()
        assert (await waited(waiting, "/v1/messages"))[-1].startswith(b'event: error\ndata: {"type":"error"')

    @pytest.mark.parametrize(
        ("script", "words", "code"),
        [
            (
                answering(b'{"error":{"message":"context is full","code":"full"}}', 400),
                b"context is full",
                b'"reason":"full"',
            ),
            (answering(b"<p>Welcome to nginx!</p>", content_type="text/html"), b"to nginx!", b'"code":"bad_answer"'),
        ],
    )
    async def test_a_refusal_or_rubbish_of_the_engine_goes_into_the_stream(
        self, waiting: Any, script: Any, words: bytes, code: bytes
    ) -> None:
        """200 has gone out, so either is told by its words."""
        waiting.engine.script = script
        *_, told, done = await waited(waiting)
        assert words in told
        assert code in told
        assert done == b"data: [DONE]"
        assert (await waiting.ended()).state is RequestState.FAILED

    @pytest.mark.parametrize(("path", "code"), [
        ("/v1/chat/completions", b'"code":"context_length_exceeded"'),
        ("/v1/responses", b'"error":{"code":"context_length_exceeded"'),
        ("/v1/messages", b'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error"'),
    ])  # fmt: skip
    async def test_a_prompt_that_is_too_long_is_known_by_its_own_code(
        self, waiting: Any, path: str, code: bytes
    ) -> None:
        """Also inside a stream, agents compact on it."""
        waiting.engine.script = answering(TOO_LONG, status=400)
        content = b"\n\n".join(await waited(waiting, path))
        assert code in content
        assert b"maximum context length is 4096 tokens. However, you requested 6002 tokens" in content

    async def test_a_waiting_client_that_leaves_gives_its_place_up(self, waiting: Any) -> None:
        """The ticket ends, and the engine never hears of the request."""
        async with asking(waiting) as reply:
            await anext(reply.aiter_raw())
        await asyncio.wait_for(waiting.supervisor.left.wait(), 60)
        assert (waiting.supervisor.open, waiting.engine.seen) == (0, [])
        assert (await waiting.ended()).state is RequestState.GONE


class TestPatient:
    """The default: a true status for the first seconds."""

    @pytest.mark.parametrize("streams", [True, False])
    @pytest.mark.parametrize("path", [*PATHS.values(), "/v1/embeddings", "/api/chat", "/api/generate"])
    async def test_a_failed_load_is_told_with_a_status_that_no_client_repeats(
        self, waiting: Any, path: str, streams: bool
    ) -> None:
        """Agents repeat a 503, some after the very time that Retry-After names, and each try is a load; the reason is in `message`."""
        waiting.supervisor.error = BROKEN
        waiting.supervisor.gate.set()
        text = {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "input": "hi"}
        shown = {"/v1/responses": ("input",), "/v1/embeddings": ("input",), "/api/generate": ("prompt",)}
        asked = {key: text[key] for key in shown.get(path, ("messages", "prompt"))}
        reply = await waiting.client.post(path, json={"model": "alpha", "stream": streams, **asked})
        assert reply.status_code == 400
        assert "retry-after" not in reply.headers
        assert reply.headers["x-should-retry"] == "false"
        told = reply.json()["error"]
        if path.startswith("/api/"):
            assert told == "alpha did not come up: out of memory."
        else:
            assert (told["type"], told["code"]) == ("invalid_request_error", "out_of_memory")
        assert (await waiting.ended()).status == 400

    async def test_a_full_queue_says_when_to_come_back(self, waiting: Any) -> None:
        """Retry-After is obeyed to the second by every SDK."""
        waiting.supervisor.error = AdmissionError("full.", code="queue_full", status=503, retry_after=9.2)
        waiting.supervisor.gate.set()
        chat = await waiting.chat(stream=True)
        messages = await waiting.client.post("/v1/messages", json={"model": "alpha", "stream": True})
        assert (chat.status_code, chat.headers["retry-after"]) == (503, "10")
        assert "x-should-retry" not in chat.headers
        assert chat.json()["error"]["type"] == "server_error"
        assert messages.json()["error"]["type"] == "overloaded_error"
