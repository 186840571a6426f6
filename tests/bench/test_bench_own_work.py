"""Arms compared on the owner's own requests: tests on the same requests, a verdict in words, no word of an answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sparkdash import paths
from sparkdash.bench import run_folder
from sparkdash.bench.judge.judgement import Overall
from sparkdash.bench.judge.own_work import OwnWork, judge_own_work
from sparkdash.bench.judge.tool_calls import AnswerCheck, JsonOutcome, ToolOutcome
from sparkdash.bench.judge.verdict import Conclusion, Verdict
from sparkdash.bench.measure.arm_launcher import UrlLauncher
from sparkdash.bench.measure.http_client import BenchClient
from sparkdash.bench.measure.runner import Runner
from sparkdash.bench.plan import suites
from sparkdash.bench.plan.run_plan import RunTarget, new_run
from sparkdash.bench.records import CellRecord, LaunchRecord, RequestSample
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats.markdown import render_markdown
from sparkdash.bench.report.page import report_page
from sparkdash.bench.results import Results, gather
from sparkdash.bench.run import Arm, CellKey, Kind, LaunchSlot, Mode, PlannedCell, Run
from sparkdash.cli.main import app
from tests.shared.exact_server import ExactServer, _event, _frame

AT = datetime(2026, 11, 21, 20, 0, tzinfo=UTC)
WORK = CellKey(suite="mine", context=0, output=512, kind=Kind.WORK, text="captured")
Say = Callable[[str, int, int], AnswerCheck]
"""(arm, launch, request) -> the checked answer."""


def asked(requests: int, say: Say, arms: Sequence[str] = ("A", "B"), launches: int = 1) -> Results:
    """Every arm answers every request in each of its launches."""
    order = tuple(LaunchSlot(arm=arm, block=block) for block in range(launches) for arm in arms)
    run = Run(
        id="x", suite="mine", suite_version="1", suite_hash="5eed", arms=tuple(Arm(name=a, profile=a) for a in arms),
        baseline="A", mode=Mode.SCREEN, seed=1, created_at=AT, order=order,
        cells=(PlannedCell(key=WORK, reps=requests),),
    )  # fmt: skip
    records: list[LaunchRecord | RequestSample | CellRecord] = []
    for launch, slot in enumerate(order):
        for rep in range(requests):
            check = say(slot.arm, launch // len(arms), rep)
            sample = RequestSample(
                cell=WORK, arm=slot.arm, launch=launch, rep=rep, prompt_id=f"work {rep}", t0_ns=0, check=check,
                output_sha256=check.answer_sha256,
            )  # fmt: skip
            records.append(sample)
        records.append(CellRecord(key=WORK, arm=slot.arm, launch=launch, started_at=AT, ended_at=AT))
    return gather(run, records)


def checked(tools: ToolOutcome | None = None, answer: str = "", json_answer: JsonOutcome | None = None) -> AnswerCheck:
    return AnswerCheck(tools=tools, json_answer=json_answer, decision_sha256=str(tools), answer_sha256=answer)


def decode(delta: float, claim: Conclusion = Conclusion.FASTER) -> list[Overall]:
    return [Overall(arm="B", verdict=Verdict(claim=claim, delta=delta), cells=1)]


def test_an_arm_that_is_faster_and_breaks_calls_loses_tools() -> None:
    """One verdict in words: the speed, both shares, and what is lost."""

    def say(arm: str, launch: int, rep: int) -> AnswerCheck:
        broken = rep < (10 if arm == "A" else 22)
        return checked(ToolOutcome.ARGUMENTS if broken else ToolOutcome.VALID)

    base, arm = judge_own_work(asked(250, say), decode=decode(0.12))
    assert (base.verdict, arm.verdict) == (None, "+12.0 % decode, tool calls 96.0 -> 91.2 %: loses tools")
    assert arm.tools is not None
    assert arm.tools.faults == {"wrong arguments": 22}


def judged(lost: int, won: int = 0, requests: int = 100, arms: Sequence[str] = ("A", "B")) -> OwnWork:
    """The first `lost` requests only A answers well, the next `won` only B."""

    def say(arm: str, launch: int, rep: int) -> AnswerCheck:
        wrong = rep < lost if arm != "A" else lost <= rep < lost + won
        return checked(ToolOutcome.NONE if wrong else ToolOutcome.VALID)

    return judge_own_work(asked(requests, say, arms))[1]


@pytest.mark.parametrize(
    ("lost", "won", "requests", "words"),
    [
        (0, 0, 200, "keeps tools"),
        (1, 1, 200, "keeps tools"),
        (12, 0, 100, "loses tools"),
        (0, 12, 100, "gains tools"),
        (2, 0, 10, "too few requests to judge tools"),
        (6, 4, 100, "too few requests to judge tools"),
    ],
)
def test_the_words_claim_no_more_than_the_test_on_pairs(lost: int, won: int, requests: int, words: str) -> None:
    """A loss needs McNemar's test; `keeps` needs an interval that excludes a loss of five points."""
    assert str(judged(lost, won, requests).verdict).endswith(f": {words}")


def test_a_claim_holds_for_all_arms_together() -> None:
    """Six of six lost are p = 0.031: a loss for one arm, none among four."""
    assert str(judged(6).verdict).endswith("loses tools")
    assert not str(judged(6, arms=("A", "B", "C", "D", "E")).verdict).endswith("loses tools")


def test_a_missing_call_counts_where_another_arm_called() -> None:
    """A request that no arm answered with a tool counts for none; one that demands a call counts anyway."""
    quiet, valid = checked(ToolOutcome.NONE), checked(ToolOutcome.VALID)
    demanded = quiet.replace(required=True)
    answers = {"A": [valid, quiet, demanded, checked()], "B": [quiet, quiet, demanded, checked()]}
    base, arm = judge_own_work(asked(4, lambda arm, launch, rep: answers[arm][rep]))
    assert base.tools is not None
    assert arm.tools is not None
    assert [(one.tools.valid, one.tools.n) for one in (base, arm) if one.tools] == [(1, 2), (0, 2)]


def test_without_tools_the_verdict_tells_how_many_answers_agree() -> None:
    """The baseline's own second launch shows what numerics change by themselves; a speed that is unclear says so."""

    def say(arm: str, launch: int, rep: int) -> AnswerCheck:
        return checked(answer="x" if rep >= 2 or (arm, launch) == ("A", 0) else f"{arm}{launch}")

    base, arm = judge_own_work(asked(10, say, launches=2), decode=decode(0.01, Conclusion.INCONCLUSIVE))
    assert arm.verdict == "+1.0 % decode (not claimed): 8/10 answers agree"
    assert base.equal is not None
    assert (base.equal.agreeing, base.equal.identical, base.equal.deciding, base.equal.n) == (8, 8, 10, 10)


def test_an_arm_that_may_not_be_compared_has_shares_and_no_verdict() -> None:
    """Nor does one whose baseline was never measured."""
    results = asked(5, lambda arm, launch, rep: checked(ToolOutcome.VALID))
    apart = judge_own_work(results, apart=("B",))[1]
    assert (apart.verdict, apart.equal, apart.tools and apart.tools.share) == (None, None, 1.0)
    alone = results.replace(samples=tuple(one for one in results.samples if one.arm == "B"))
    assert [(one.arm, one.verdict) for one in judge_own_work(alone)] == [("B", None)]


@dataclass
class WorkServer(ExactServer):
    """Answers whole requests with tool calls and JSON, in small pieces."""

    breaks: bool = False
    """Breaks every fourth call and writes JSON behind a fence."""

    async def _stream(self, writer: asyncio.StreamWriter, body: Mapping[str, Any]) -> None:
        if body.get("ignore_eos"):
            return await super()._stream(writer, body)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for delta in self._deltas(body):
            _event(writer, {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        _event(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        _event(writer, {"choices": [], "usage": self._usage(body, 20)})
        _frame(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        return await writer.drain()

    def _deltas(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        number = int(body["messages"][-1]["content"].split()[-1])
        if body.get("response_format"):
            return [{"content": "```json\n" if self.breaks else ""}, {"content": json.dumps({"city": f"c{number}"})}]
        city: Any = number if self.breaks and number % 4 == 0 else f"c{number}"
        whole = json.dumps({"city": city})
        begin = {"index": 0, "id": "x", "type": "function", "function": {"name": "weather", "arguments": ""}}
        pieces = [{"index": 0, "function": {"arguments": whole[at : at + 5]}} for at in range(0, len(whole), 5)]
        return [{"tool_calls": [piece]} for piece in (begin, *pieces)]


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
REQUESTS = 16


def captured_line(number: int) -> str:
    tools = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
    wanted = {"type": "json_schema", "json_schema": {"name": "c", "schema": SCHEMA}}
    more = {"response_format": wanted} if number % 2 else {"tools": tools}
    body = {"messages": [{"role": "user", "content": f"the secret garden {number}"}], "temperature": 1.0, **more}
    return json.dumps({"at": 1.0, "method": "POST", "path": "/v1/chat/completions", "body": body})


async def replayed(tmp_path: Path) -> tuple[Results, str]:
    """Replay captured requests at two servers, of which the second breaks calls and JSON."""
    (paths.state_dir() / "captured.jsonl").write_text("\n".join(map(captured_line, range(REQUESTS))))
    assert CliRunner().invoke(app, ["bench", "captured", "mine", "--output", "32", "--answer", "64"]).exit_code == 0
    suite = suites.load_suite("mine")
    good, bad = WorkServer(decode=5000.0, prefill=1e6), WorkServer(decode=5000.0, prefill=1e6, breaks=True)
    async with good.serving() as one, bad.serving() as other, BenchClient(one) as wire:
        arms = (Arm(name="A", profile=one), Arm(name="B", profile=other))
        run = new_run(suite, arms, Mode.SCREEN, where=RunTarget(target="url"))
        place = run_folder.create_run_folder(run, tmp_path)
        runner = Runner(place, UrlLauncher(wire), lambda _: None, lag_limit_ms=1e9, chats=suite.chats)
        results = await asyncio.wait_for(runner.run(), 60)
    whole = [body for body in good.asked if body["max_tokens"] == 64]
    assert {body["messages"][0]["content"] for body in whole} == {f"the secret garden {n}" for n in range(REQUESTS)}
    assert {body["temperature"] for body in whole} == {0.0}
    assert not any("response_format" in body for body in good.asked if body.get("ignore_eos"))
    return results, (place / "records.jsonl").read_text()


async def test_captured_requests_are_replayed_word_for_word_and_judged(tmp_path: Path) -> None:
    """Over real connections, whole: calls in pieces are joined, checked and compared, and no record has their words."""
    results, records = await replayed(tmp_path)
    assert results.gaps() == ()
    report = assemble_report(results)
    base, arm = report.own_work
    shares = [(one.tools, one.json_answers) for one in (base, arm)]
    assert [[(part.valid, part.n) for part in pair if part] for pair in shares] == [[(8, 8), (8, 8)], [(4, 8), (0, 8)]]
    assert arm.equal is not None
    assert (arm.equal.identical, arm.equal.agreeing, arm.equal.deciding) == (4, 4, 16)
    assert str(arm.verdict).endswith(
        "tool calls 100.0 -> 50.0 %, JSON 100.0 -> 0.0 %: too few requests to judge tools, loses JSON"
    )
    page = render_markdown(report_page(report))
    assert f"B: {arm.verdict}." in page
    assert "4 wrong arguments" in page
    told = records + report.model_dump_json() + page
    assert not [word for word in ("secret garden", "weather", '\\"city', "c12") if word in told]
