"""Reading of a stream and of the moments of its pieces, against simulated engines whose truth is known.

The engine's clock is virtual and the pieces carry its time, so that a figure is right or wrong whatever the machine does.
"""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from exact_server import ExactServer
from leaping import LeapingClock
from measured_server import OwnServer
from simulated import serving

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.measure import http_client, measured_engine, stream_answer
from sparkdash.bench.measure.arm_launcher import LaunchedArm, is_thinking
from sparkdash.bench.measure.http_client import (
    ROOM,
    SO_TIMESTAMPNS,
    TOLD,
    BenchClient,
    BrokenAnswerError,
    TimedAnswer,
    timed_post,
)
from sparkdash.bench.measure.measured_engine import MeasuredEngine, PromptTokenCounter
from sparkdash.bench.measure.stream_answer import StreamedAnswer, read_stream
from sparkdash.bench.measure.voids import request_void_reason
from sparkdash.bench.plan import prompts
from sparkdash.bench.plan.suites import CLASSES
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats import render_markdown
from sparkdash.bench.report.page import report_page
from sparkdash.bench.results import RequestSample, Results
from sparkdash.bench.run import Arm, CellKey
from sparkdash.domain.profile import EngineKind, Profile, SimSpec, SimSpeed
from sparkdash.engines.registry import adapter
from sparkdash.errors import UpstreamError
from sparkdash.sim.app import App
from sparkdash.sim.http_server import HttpRequest

CHUNK_RATE = 100.0
CELL = CellKey(suite="s", context=0, output=400)


def frame(**event: Any) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def delta(finish: str | None = None, usage: int | None = None, **parts: Any) -> bytes:
    told = {} if usage is None else {"usage": {"completion_tokens": usage}}
    return frame(choices=[{"index": 0, "delta": parts, "finish_reason": finish}], **told)


def streamed(per_chunk: int, n: int, *, counts: bool = False, usage_ahead: int = 0) -> StreamedAnswer:
    """An answer at exactly DECODE tok/s whose first chunk is as large as the others."""
    pieces, done = [], 0
    while done < n:
        size = min(per_chunk, n - done)
        done += size
        event: dict[str, Any] = {"choices": [{"index": 0, "delta": {"content": "so " * size}}]}
        if counts:
            event["usage"] = {"completion_tokens": done}
        if done == n:
            event["choices"][0]["finish_reason"] = "length"
        at = 1.0 + max(0, done - per_chunk) / CHUNK_RATE
        pieces.append((round(at * 1e9), frame(**event)))
    end = frame(choices=[], usage={"completion_tokens": n + usage_ahead, "prompt_tokens": 9})
    return read_stream(0, [*pieces, (pieces[-1][0], end)])


def sample(answer: StreamedAnswer) -> RequestSample:
    """The answer as the value that reports read."""
    names = ("t0_ns", "token_ns", "visible_ns", "last_ns", "n", "k1", "visible", "prompt_tokens")
    figures = {name: getattr(answer, name) for name in names}
    return RequestSample(cell=CELL, arm="A", launch=0, rep=0, prompt_id="p", **figures)


@pytest.mark.parametrize("per_chunk", [1, 3, 16])
@pytest.mark.parametrize("n", [32, 150])
def test_the_decode_rate_is_true_for_a_first_chunk_of_any_size(per_chunk: int, n: int) -> None:
    told, silent = streamed(per_chunk, n, counts=True), streamed(per_chunk, n)
    assert told.k1 == per_chunk
    assert stream_answer.is_known(told)
    assert stream_answer.is_known(silent) is (per_chunk == 1)
    counted = silent if per_chunk == 1 else stream_answer.counted(silent, per_chunk)
    guessed = silent if per_chunk == 1 else stream_answer.estimated(silent)
    assert guessed.k1_assumed is (per_chunk > 1)
    assert not counted.k1_assumed
    for answer in (told, counted, guessed):
        assert sample(answer).decode_tok_s == pytest.approx(CHUNK_RATE, rel=1e-6) or n - answer.k1 < 15


def test_a_count_is_held_to_what_the_chunks_allow_and_an_end_token_without_text_spoils_short_answers_alone() -> None:
    """Another tokenizer's count, or none of the text, cannot leave fewer tokens than chunks."""
    assert [stream_answer.counted(streamed(3, 32), count).k1 for count in (1000, 0)] == [32 - 10, 1]
    assert [stream_answer.is_known(streamed(1, n, usage_ahead=1)) for n in (400, 32)] == [True, False]


async def launched(server: ExactServer) -> tuple[LaunchedArm, list[StreamedAnswer]]:
    """The arm at a server's URL, and two answers of 32 tokens."""
    async with server.serving() as url, BenchClient("") as wire:
        arm = await OwnServer(wire).launch(Arm(name=url, profile=url), None)
        server.asked.clear()
        return arm, await arm.measured.ask_all(["Tell me.", "Tell me more."], 32, salt="s")


@pytest.mark.parametrize(("server", "k1", "assumed"), [
    (ExactServer(per_chunk=3), 3, False), (ExactServer(per_chunk=3, counts=False), 3, False),
    (ExactServer(per_chunk=3, counts=False, owner="someone"), 3, False),
    (ExactServer(per_chunk=3, counts=False, tokenizes=False), 2, True),
    (ExactServer(per_chunk=16, counts=False, tokenizes=False), 16, True),
    (ExactServer(per_chunk=1, counts=False, tokenizes=False), 1, False),
])  # fmt: skip
async def test_tokens_of_a_first_chunk_are_counted_else_marked(server: ExactServer, k1: int, assumed: bool) -> None:
    server.decode = server.prefill = 1e6
    _, answers = await launched(server)
    assert [one.n for one in answers] == [32, 32]
    assert [(one.k1_assumed, one.error) for one in answers] == [(assumed, None)] * 2
    if assumed:
        assert all(abs(one.k1 - k1) <= 4 for one in answers)
    else:
        assert [one.k1 for one in answers] == [k1, k1]


@pytest.mark.parametrize("strict", [False, True])
async def test_keys_of_an_unknown_server_are_tried(strict: bool) -> None:
    arm, answers = await launched(ExactServer(decode=1e6, prefill=1e6, per_chunk=3, owner="sparkdash", strict=strict))
    assert arm.measured.speaks == (EngineKind.OPENAI if strict else EngineKind.VLLM)
    assert [one.n for one in answers] == ([5, 5] if strict else [32, 32])


def test_a_rate_that_hangs_on_an_estimate_is_marked_and_compared_with_none(rehearse: Callable[..., Results]) -> None:
    """In its own cell alone, and for the decode rate alone; end to end it is a comparison like any other."""
    other = CellKey(suite="s", context=512, output=400)
    arms = [Arm(name=name, profile=name) for name in ("A", "B")]
    found = rehearse(arms=arms, rates={"A": {CELL: 50.0, other: 50.0}, "B": {CELL: 70.0, other: 70.0}})
    samples = (one.replace(k1_assumed=one.arm == "B" and one.cell == CELL) for one in found.samples)
    report = assemble_report(found.replace(samples=tuple(samples)))

    def claim(metric: BenchMetric, key: CellKey) -> Conclusion | None:
        figure = report.figure(metric, "B", key)
        return figure.verdict.claim if figure else None

    assert claim(BenchMetric.DECODE, CELL) is Conclusion.VOID
    assert claim(BenchMetric.DECODE, other) is Conclusion.FASTER
    assert claim(BenchMetric.E2E, CELL) is Conclusion.FASTER
    assert report.overall[0].cells == 1
    text = render_markdown(report_page(report))
    assert "~" in text
    assert "estimated from its share of the text" in text


@pytest.mark.parametrize(("server", "keys"), [
    (ExactServer(owner="llamacpp"), EngineKind.LLAMACPP), (ExactServer(owner="someone"), EngineKind.VLLM),
    (ExactServer(owner="someone", strict=True), None),
])  # fmt: skip
async def test_an_attached_server_gets_the_keys_that_it_takes(server: ExactServer, keys: EngineKind | None) -> None:
    """A profile of kind `openai` names no engine: its list of models does, else one request tries."""
    server.decode = server.prefill = 1e6
    async with server.serving() as url, BenchClient(url) as wire:
        assert await measured_engine.attached_keys(wire, "alpha", url) is keys


DECODE, PREFILL = 50.0, 4000.0
QUESTION = "word " * 400
TOKENS = 145
"""One from the prefill, and 144 by steps of 1, 3 or 16: a step that is cut off at the end would take its whole time."""


def sim(**spec: Any) -> Profile:
    speeds = (SimSpeed(context=0, decode_tok_s=DECODE, prefill_tok_s=PREFILL),)
    return Profile(name="sim", engine=EngineKind.SIM, context=8192, sim=SimSpec(speeds=speeds, **spec))


async def timed(profile: Profile, body: dict[str, Any]) -> StreamedAnswer:
    """A chat's answer as it is read when each piece arrives the moment that it is made."""
    clock = LeapingClock(1.0, turns=10)
    app = App(profile, clock)
    stepping = asyncio.create_task(app.engine.run())
    response = await app.handle(
        HttpRequest(
            method="POST", path="/v1/chat/completions", headers={}, body=json.dumps({**body, "stream": True}).encode()
        )
    )
    assert not isinstance(response.body, bytes), response.body
    notes = [(round(clock.now() * 1e9), piece) async for piece in response.body]
    stepping.cancel()
    return read_stream(10**9, notes)


def body(tokens: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": QUESTION}],
        **adapter(EngineKind.SIM).forced_length(tokens),
        **adapter(EngineKind.SIM).usage_counts(),
    }


@pytest.mark.parametrize("per_chunk", [1, 3, 16])
@pytest.mark.parametrize("reasoning", [0, 80])
async def test_rates_are_true_whatever_a_chunk_holds(per_chunk: int, reasoning: int) -> None:
    """Tokens per chunk and reasoning change no rate: within 0.5 % of what the engine was told to do."""
    answer = await timed(sim(acceptance=(1.0,) * (per_chunk - 1), reasoning_tokens=reasoning), body(TOKENS))
    seen = sample(answer)
    assert answer.error is None
    assert seen.n == TOKENS
    assert seen.decode_tok_s == pytest.approx(DECODE, rel=0.005)
    assert seen.prompt_tokens is not None
    assert seen.ttft_s == pytest.approx(seen.prompt_tokens / PREFILL, rel=0.005)
    whole_s = seen.prompt_tokens / PREFILL + (TOKENS - 1) / DECODE
    assert seen.e2e_tok_s == pytest.approx(TOKENS / whole_s, rel=0.005)
    assert answer.chunks == 1 + (TOKENS - 1) // per_chunk
    if reasoning:
        assert answer.thought
        assert seen.visible == pytest.approx(TOKENS - reasoning, abs=per_chunk)
        thought_s = (seen.ttfv_s or 0.0) - (seen.ttft_s or 0.0)
        assert (reasoning - 1) / DECODE <= thought_s <= (reasoning + 2 * per_chunk) / DECODE
    else:
        assert (seen.visible, seen.ttfv_s) == (TOKENS, seen.ttft_s)


def test_the_longest_waits_between_tokens_are_kept() -> None:
    """A single wait of a hundred is longer than the 99th percentile; tokens of one piece have no wait between."""
    ats = [10 * at for at in range(100)] + [2000]
    pieces = [(at, delta(usage=2 * at + 2, content="a") + delta(content="b")) for at in ats]
    assert read_stream(0, pieces).itl_p99_ns == 2000 - 990
    assert read_stream(0, pieces[:-1]).itl_p99_ns == 10
    assert read_stream(0, pieces[:1]).itl_p99_ns is None


def used(completion: object, **more: object) -> bytes:
    return frame(choices=[], usage={"completion_tokens": completion, **more})


OLD_NAME = delta(reasoning_content="hm")
ODD_USAGE = {"prompt_tokens": 2.5, "prompt_tokens_details": [], "completion_tokens_details": 7}
READ: dict[str, tuple[list[tuple[int, bytes]], dict[str, object]]] = {
    "usage at the end does not count the first chunk": (
        [(1, delta(content="a b c d e f")), (2, delta("length", 9, content="b c"))],
        {"n": 9, "chunks": 2, "k1_told": False}),
    "a role is no token": (
        [(5, delta(role="assistant", content="")), (9, delta(content="a")), (20, delta(content="b"))],
        {"token_ns": 9, "visible_ns": 9, "last_ns": 20}),
    "a token without text is a token, as the count tells": (
        [(1, delta(usage=1, content="a")), (2, delta(usage=2, content="")), (3, delta("length", 3, content="")),
         (4, used(3))],
        {"last_ns": 3, "n": 3, "chunks": 3, "finish_reason": "length"}),
    "what comes in one piece was there at the first moment": (
        [(10, delta(usage=1, content="a") + delta(usage=2, content="b")), (20, delta(usage=3, content="c"))],
        {"token_ns": 10, "k1": 2, "first_chunks": 2}),
    "cut frames, and reasoning by its older name": (
        [(1, OLD_NAME[:9]), (2, OLD_NAME[9:]), (3, delta(content="so"))],
        {"token_ns": 2, "visible_ns": 3, "thought": "hm", "text": "so", "n": None, "visible": None}),
    "usage tells reasoning and cache": (
        [(1, delta(reasoning="a")), (2, delta(content="b")), (3, used(
            10, prompt_tokens=9, completion_tokens_details={"reasoning_tokens": 4},
            prompt_tokens_details={"cached_tokens": 8}))],
        {"n": 10, "visible": 6, "prompt_tokens": 9, "cached_tokens": 8}),
    "more reasoning than there is": (
        [(1, delta(reasoning="a")), (2, used(3, completion_tokens_details={"reasoning_tokens": 5}))], {"visible": 0}),
    "an error in the stream": (
        [(1, delta(content="a")), (2, frame(error={"message": "the engine died"}))], {"error": "the engine died"}),
    "figures of another shape": (
        [(1, frame(choices=5)),
         (1, frame(choices=[None, {"delta": "x"}, {"delta": {"content": ["a"]}, "finish_reason": 1}])),
         (1, delta(content="b")), (1, used("3", **ODD_USAGE))],
        {"error": None, "text": "b", "n": None, "prompt_tokens": None, "cached_tokens": None, "finish_reason": None,
         "visible": None}),
}  # fmt: skip


@pytest.mark.parametrize(("pieces", "figures"), READ.values(), ids=READ)
def test_a_stream_is_read(pieces: list[tuple[int, bytes]], figures: dict[str, object]) -> None:
    answer = read_stream(0, pieces)
    assert {name: getattr(answer, name) for name in figures} == figures


@pytest.mark.parametrize("data", ["5", "null", "[]", '"so"'])
def test_an_event_that_is_no_object_is_an_error(data: str) -> None:
    assert "no JSON object" in (read_stream(0, [(1, f"data: {data}\n\n".encode())]).error or "")


async def test_a_request_over_the_wire() -> None:
    async with serving(sim(time_scale=20)) as (_app, url), BenchClient(url) as wire:
        measured = MeasuredEngine(client=wire, kind=EngineKind.SIM, model="sim", engine_url=url)
        (answer,) = await measured.ask_all(["Tell me."], 40, salt="s")
        assert answer.error is None
        assert answer.t0_ns < (answer.token_ns or 0) < (answer.last_ns or 0)
        assert (answer.n, answer.finish_reason) == (40, "length")
        counter = await measured.counter()
        assert counter.exact
        assert await counter("chat", "Tell me.") == answer.prompt_tokens
        counted = await measured.counters()
        assert counted is not None
        assert counted.counters.generated == 42
        (refused,) = await measured.ask_all(["x"], 100_000, salt="s")
        assert refused.error is not None
        assert "HTTP 400" in refused.error


async def test_without_a_tokenize_route_prompts_are_nearly_as_long_as_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 3 %, for every class of text, from a few short requests."""
    monkeypatch.setattr(adapter(EngineKind.SIM), "count_request", lambda *_: None)
    async with serving(sim(time_scale=100)) as (_app, url), BenchClient(url) as wire:
        measured = MeasuredEngine(client=wire, kind=EngineKind.SIM, model="sim", engine_url=url)
        counter = await measured.counter()
        assert not counter.exact
        for kind in CLASSES:
            key = CellKey(suite="x", context=2048, output=16, text=kind)
            prompt = await prompts.build_prompt(1, key, prompts.PromptIndex(0), counter)
            (answer,) = await measured.ask_all([prompt.content], 1, salt="s")
            assert answer.prompt_tokens == pytest.approx(2048, rel=0.03)


@pytest.mark.parametrize(("pieces", "doubt"), [((b"a",), False), ((b"a", b"b"), True)])
async def test_a_late_client_doubts_only_what_came_together(pieces: tuple[bytes, ...], doubt: bool) -> None:
    """The loop stands still while an answer comes: the kernel notes one token; of several the first may be late."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        async with BenchClient(f"http://127.0.0.1:{server.getsockname()[1]}") as wire:
            asking = asyncio.create_task(wire.chat({"model": "x"}))
            engine, _ = await loop.sock_accept(server)
            while not (await loop.sock_recv(engine, 65536)).endswith(b"}"):
                pass
            engine.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            engine.sendall(b"".join(delta(content=piece.decode()) for piece in pieces))
            time.sleep(0.05)  # noqa: ASYNC251 - the stall that is the point
            engine.close()
            answer = await asking
    assert answer.text == "".join(piece.decode() for piece in pieces)
    assert (answer.lag_ms > 0) is doubt


async def test_an_engine_that_stops_telling_its_tokens_is_not_estimated() -> None:
    """An engine that was known to count exactly: another figure would be a prompt of another length."""

    class Mute(BenchClient):
        async def post(self, *_: object, **__: object) -> object:
            return ["no", "object"]

    counter = PromptTokenCounter(MeasuredEngine(client=Mute("http://x"), kind=EngineKind.VLLM, model="m"), exact=True)
    with pytest.raises(UpstreamError, match="m no longer reports its tokens"):
        await counter("prose", "text")


async def test_nobody_listens(unused_tcp_port: int) -> None:
    async with BenchClient(f"http://127.0.0.1:{unused_tcp_port}") as wire:
        assert (await wire.chat({"model": "x"})).error is not None


@pytest.mark.parametrize(("values", "thinking"), [
    ({}, None), ({"request": {"temperature": 0}}, None),
    ({"request": {"chat_template_kwargs": {"enable_thinking": False}}}, False),
    ({"request": {"chat_template_kwargs": {"thinking": True, "reasoning_effort": "high"}}}, True),
    ({"request_set": {"chat_template_kwargs": {"thinking": False}}}, False),
    ({"request": {"chat_template_kwargs": {"thinking_mode": "enabled"}}}, True),
    ({"request": {"chat_template_kwargs": {"thinking_mode": "adaptive"}}}, None),
])  # fmt: skip
def test_the_switch_of_thinking_is_noted_under_each_of_its_names(values: dict[str, Any], thinking: bool | None) -> None:
    """DeepSeek's templates know `thinking`, MiniMax-M3's `thinking_mode`, the others `enable_thinking`."""
    assert is_thinking(Profile.model_validate({"name": "p", "engine": "vllm", **values})) is thinking


def test_an_answer_of_hidden_reasoning_says_so_in_its_void() -> None:
    """Tokens were counted, but none has a moment."""
    answer = read_stream(0, [(1, delta("length", content="")), (2, used(400))])
    reason = request_void_reason(answer, CELL, exact=False, template=0, lag_limit_ms=5)
    assert reason == "none of its 400 tokens were shown; if it hides its reasoning, turn thinking off"


OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """The root of a server that gives this answer and closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\nbody")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def asked(root: str, uds: Path | None = None) -> TimedAnswer:
    return await timed_post(root, "/v1/chat/completions", {"X-Of": "ours"}, b"body", uds)


@pytest.fixture
def noting() -> Iterator[None]:
    """The kernel notes arrivals from a moment after the first socket asked for it (it is switched on by a work queue), and till then
    notes when they are read. This socket asks, and has seen that it is so."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as box:
        box.bind(("127.0.0.1", 0))
        box.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        late_ns = 0
        while late_ns < 500_000:
            box.sendto(b"x", box.getsockname())
            time.sleep(0.001)
            read_ns = time.time_ns()
            ((_, _, told),) = box.recvmsg(1, ROOM)[1]
            seconds, nanoseconds = TOLD.unpack(told)
            late_ns = read_ns - seconds * 1_000_000_000 - nanoseconds
        yield


@pytest.mark.usefixtures("noting")
async def test_a_late_client_measures_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop stands still when the piece comes: the moment is that of the arrival, before the loop went on."""
    loop, seen, on_body = asyncio.get_running_loop(), asyncio.Event(), http_client._Answer.on_body
    monkeypatch.setattr(http_client._Answer, "on_body", lambda answer, body: (on_body(answer, body), seen.set()))
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        asking = asyncio.create_task(asked(f"http://127.0.0.1:{server.getsockname()[1]}"))
        engine, _ = await loop.sock_accept(server)
        request = b""
        while not request.endswith(b"body"):
            request += await loop.sock_recv(engine, 65536)
        await asyncio.sleep(0)
        engine.sendall(OK + chunk(b"data: a\n\n"))
        sent = time.perf_counter_ns()
        time.sleep(0.02)  # noqa: ASYNC251 - the stall that is the point
        went_on = time.perf_counter_ns()
        await seen.wait()  # it is read before the end comes
        await loop.sock_sendall(engine, END)
        timed = await asking
        engine.close()
    assert b"X-Of: ours\r\n" in request
    assert timed.body == b"data: a\n\n"
    arrived = timed.pieces[0][0]
    assert timed.t0_ns < arrived < went_on
    assert timed.late_ns[0] >= went_on - max(sent, arrived)


async def test_a_kernel_that_notes_no_arrivals_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that refuses the option, as sandboxes do: the moment is that of the read, and none is called late."""
    monkeypatch.setattr(http_client, "SO_TIMESTAMPNS", 9999)
    async with answering(OK + chunk(b"a") + END) as root:
        timed = await asked(root)
    assert (timed.status, timed.body, timed.late_ns) == (200, b"a", [])
    assert timed.pieces[0][0] > timed.t0_ns


async def test_a_body_may_end_with_its_connection() -> None:
    async with answering(b"HTTP/1.1 503 Busy\r\n\r\nlater") as root:
        timed = await asked(root)
    assert (timed.status, timed.body) == (503, b"later")


@pytest.mark.parametrize("answer", [OK + chunk(b"a"), b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\n"])
async def test_what_is_broken_off_is_an_error(answer: bytes) -> None:
    async with answering(answer) as root:
        with pytest.raises(BrokenAnswerError):
            await asked(root)


async def test_a_unix_socket(tmp_path: Path) -> None:
    """The URL's host only fills the Host header; nobody tells when bytes came, and that is not zero."""
    place = tmp_path / "s"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert b"Host: localhost\r\n" in await reader.readuntil(b"body")
        writer.write(OK + chunk(b"x") + END)
        writer.close()

    server = await asyncio.start_unix_server(serve, str(place))
    async with server:
        timed = await asked("http://localhost", place)
    assert (timed.body, timed.late_ns) == (b"x", [])
