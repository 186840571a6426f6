"""Tokens of a first chunk, and servers at a URL: what is known of them, and what is marked where it is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from exact_server import ExactServer

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.measure import measured_engine, stream_answer
from sparkdash.bench.measure.arm_launcher import LaunchedArm, UrlLauncher
from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.bench.measure.stream_answer import StreamedAnswer, read_stream
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats.markdown import render_markdown
from sparkdash.bench.report.page import report_page
from sparkdash.bench.report.run_difference import compare_runs
from sparkdash.bench.results import RequestSample, Results
from sparkdash.bench.run import Arm, CellKey
from sparkdash.domain.profile import EngineKind

DECODE = 100.0
CELL = CellKey(suite="s", context=0, output=400)


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
        at = 1.0 + max(0, done - per_chunk) / DECODE
        pieces.append((round(at * 1e9), f"data: {json.dumps(event)}\n\n".encode()))
    end = {"choices": [], "usage": {"completion_tokens": n + usage_ahead, "prompt_tokens": 9}}
    return read_stream(0, [*pieces, (pieces[-1][0], f"data: {json.dumps(end)}\n\n".encode())])


def decode_rate(answer: StreamedAnswer) -> float | None:
    """The rate that reports show."""
    names = ("t0_ns", "token_ns", "last_ns", "n", "k1")
    sample = RequestSample(
        cell=CELL, arm="A", launch=0, rep=0, prompt_id="p", **{name: getattr(answer, name) for name in names}
    )
    return sample.decode_tok_s


@pytest.mark.parametrize("per_chunk", [1, 3, 16])
@pytest.mark.parametrize("n", [32, 150])
def test_the_decode_rate_is_true_for_a_first_chunk_of_any_size(per_chunk: int, n: int) -> None:
    """Counted by the server, by usage against the chunks, by a tokenizer, or by its share of even text."""
    told, silent = streamed(per_chunk, n, counts=True), streamed(per_chunk, n)
    assert told.k1 == per_chunk
    assert stream_answer.is_known(told)
    assert stream_answer.is_known(silent) is (per_chunk == 1)
    counted = silent if per_chunk == 1 else stream_answer.counted(silent, per_chunk)
    guessed = silent if per_chunk == 1 else stream_answer.estimated(silent)
    assert guessed.k1_assumed is (per_chunk > 1)
    assert not counted.k1_assumed
    for answer in (told, counted, guessed):
        assert decode_rate(answer) == pytest.approx(DECODE, rel=1e-6) or n - answer.k1 < 15


def test_a_few_tokens_without_a_chunk_of_their_own_leave_the_rate_known() -> None:
    """An end token without text changes 400 tokens by a quarter of a per cent, and 32 by three."""
    assert stream_answer.is_known(streamed(1, 400, usage_ahead=1))
    assert not stream_answer.is_known(streamed(1, 32, usage_ahead=1))


def test_a_count_is_held_to_what_the_chunks_allow() -> None:
    """Another tokenizer's count, or none of the text, cannot leave fewer tokens than chunks."""
    answer = streamed(3, 32)
    assert stream_answer.counted(answer, 1000).k1 == 32 - 10
    assert stream_answer.counted(answer, 0).k1 == 1


def test_usage_at_the_end_does_not_count_the_first_chunk() -> None:
    """Some servers write the whole usage into the last chunk with text."""
    last = {
        "choices": [{"index": 0, "delta": {"content": "b c"}, "finish_reason": "length"}],
        "usage": {"completion_tokens": 9},
    }
    first = {"choices": [{"index": 0, "delta": {"content": "a b c d e f"}}]}
    answer = read_stream(0, [(at, f"data: {json.dumps(one)}\n\n".encode()) for at, one in ((1, first), (2, last))])
    assert (answer.n, answer.chunks, answer.k1_told) == (9, 2, False)


async def launched(server: ExactServer, model: str | None = None) -> tuple[LaunchedArm, list[StreamedAnswer]]:
    """The arm at a server's URL, and two answers of 32 tokens."""
    async with server.serving() as url, BenchClient("") as wire:
        arm = await UrlLauncher(wire, model).launch(Arm(name=url, profile=url), lambda _: None)
        server.asked.clear()
        return arm, await arm.measured.ask_all(["Tell me.", "Tell me more."], 32, salt="s")


@pytest.mark.parametrize(
    ("server", "k1", "assumed"),
    [
        (ExactServer(per_chunk=3), 3, False),
        (ExactServer(per_chunk=3, counts=False), 3, False),
        (ExactServer(per_chunk=3, counts=False, owner="someone"), 3, False),
        (ExactServer(per_chunk=3, counts=False, tokenizes=False), 2, True),
        (ExactServer(per_chunk=16, counts=False, tokenizes=False), 16, True),
        (ExactServer(per_chunk=1, counts=False, tokenizes=False), 1, False),
    ],
)
async def test_tokens_of_a_first_chunk_are_counted_else_marked(server: ExactServer, k1: int, assumed: bool) -> None:
    """By the server's own counts, else its /tokenize; the share of characters is an estimate, and says so."""
    server.decode = server.prefill = 1e6
    _, answers = await launched(server)
    assert [one.n for one in answers] == [32, 32]
    assert [(one.k1_assumed, one.error) for one in answers] == [(assumed, None)] * 2
    if assumed:
        assert all(abs(one.k1 - k1) <= 4 for one in answers)
    else:
        assert [one.k1 for one in answers] == [k1, k1]


@pytest.mark.parametrize("strict", [False, True])
async def test_keys_of_an_unknown_server_are_tried_and_marked(strict: bool, rehearse: Callable[..., Results]) -> None:
    """The keys are sent where it takes them, and the report says so."""
    arm, answers = await launched(ExactServer(decode=1e6, prefill=1e6, per_chunk=3, owner="sparkdash", strict=strict))
    assert arm.provenance.engine is None
    assert arm.provenance.request_keys == (None if strict else "vllm")
    assert [one.n for one in answers] == ([5, 5] if strict else [32, 32])
    found = rehearse(
        arms=[Arm(name="A", profile="http://x")], rates={"A": {CELL: 60.0}},
        provenance={"A": {**arm.provenance.model_dump(), "engine": None}}, changes={"target": "url"},
    )  # fmt: skip
    flags = [flag.text for flag in assemble_report(found).flags]
    assert any("does not say which engine answers" in text for text in flags)
    assert any("lengths are not forced" in text for text in flags) is strict


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
    difference = compare_runs(report, report)
    assert [one.change is None for one in difference.pairs if one.profile == "B"] == [True, False]


@pytest.mark.parametrize(
    ("server", "keys"),
    [
        (ExactServer(owner="llamacpp"), EngineKind.LLAMACPP),
        (ExactServer(owner="someone"), EngineKind.VLLM),
        (ExactServer(owner="someone", strict=True), None),
    ],
)
async def test_an_attached_server_gets_the_keys_that_it_takes(server: ExactServer, keys: EngineKind | None) -> None:
    """A profile of kind `openai` names no engine: its list of models does, else one request tries."""
    server.decode = server.prefill = 1e6
    async with server.serving() as url, BenchClient(url) as wire:
        assert await measured_engine.attached_keys(wire, "alpha", url) is keys
