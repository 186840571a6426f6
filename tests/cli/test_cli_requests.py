"""`sparkdash requests`: the list, the end of one, and one sent again to another profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fake_daemon import BIRTH, FakeDaemon

from sparkdash.domain.history import match_answers
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.swap import Plan

Run = Callable[..., Any]
OPEN = {
    "a1": Request(id="a1", client="codex", profile="qwen", route="/v1/responses", state=RequestState.STREAMING,
                  started_at=BIRTH, granted_at=BIRTH),
    "b2": Request(id="b2", client="aider", profile="gpt-oss-120b", route="/v1/chat/completions",
                  state=RequestState.WAITING, started_at=BIRTH + 40, position=2),
}  # fmt: skip
OVER = Request(
    id="c3", client="cline", profile="qwen", route="/v1/chat/completions", state=RequestState.FAILED,
    started_at=BIRTH, finished_at=BIRTH + 2, error="out_of_memory", completion_tokens=7,
)  # fmt: skip


def test_requests_with_their_ids(sparkdash: Run, daemon: FakeDaemon) -> None:
    assert sparkdash("requests").out == "No request is waiting or running.\n"
    daemon.set(at=BIRTH + 60, requests=OPEN, recent=(OVER,))
    assert (
        sparkdash("requests").out
        == """\
id  client  profile       state       age  prompt  out  tok/s
a1  codex   qwen          decodes   1m00s       -    -      -
b2  aider   gpt-oss-120b  waits #2    20s       -    -      -
"""
    )
    assert sparkdash("requests", "--all").out.splitlines()[-1].split() == [
        "c3", "cline", "qwen", "out_of_memory", "2s", "-", "7", "-",
    ]  # fmt: skip
    assert [row["id"] for row in sparkdash("requests", "--all", "--json").json()] == ["a1", "b2", "c3"]


def test_one_request_is_cancelled(sparkdash: Run, daemon: FakeDaemon) -> None:
    assert sparkdash("cancel", "a1").out == "Cancelled request a1.\n"
    assert sparkdash("cancel", "a1", "--json").json() == {"cancelled": {"request": "a1"}}
    assert daemon.calls[-1] == ("POST", "/api/requests/a1/cancel", {})
    envelope = {"message": "No request 'a1' waits or runs.", "code": "request_not_found", "hint": "See the list."}
    daemon.errors["/api/requests/a1/cancel"] = (404, envelope)
    done = sparkdash("cancel", "a1")
    assert done.code != 0
    assert "No request 'a1' waits or runs." in done.err


FIRST = Request(
    id="c3", client="cline", profile="gpt-oss-120b", route="/v1/chat/completions", state=RequestState.DONE,
    started_at=BIRTH, granted_at=BIRTH, finished_at=BIRTH + 12, ttft_s=0.31, decode_tok_s=41.25, prompt_tokens=900,
    completion_tokens=480, finish_reason="stop",
)  # fmt: skip
AGAIN = Request(
    id="d4", client="sparkdash-replay", profile="qwen", route="/v1/chat/completions", state=RequestState.DONE,
    started_at=BIRTH + 60, granted_at=BIRTH + 60, finished_at=BIRTH + 68, ttft_s=0.2, decode_tok_s=58.3,
    prompt_tokens=1002, completion_tokens=455, finish_reason="length",
)  # fmt: skip


def test_both_answers_figures_are_beside_each_other(sparkdash: Run, daemon: FakeDaemon) -> None:
    plan = Plan(profile="qwen", evict=("gpt-oss-120b",), fits=True, expected_s=60.0)
    daemon.replayed = daemon.replayed.replace(
        plan=plan, original=FIRST, answer=AGAIN, match=match_answers("abcd", "abXde"), redacted=True
    )
    done = sparkdash("requests", "--replay", "c3", "--on", "qwen")
    assert "qwen replaces gpt-oss-120b." in done.err
    assert "lacks text that looked like a secret" in done.err
    assert (
        done.out
        == """\
               gpt-oss-120b  qwen (replay)
ttft                  0.31s          0.20s
decode tok/s           41.2           58.3
in the engine           12s          8.00s
prompt tokens           900           1002
cached tokens             -              -
output tokens           480            455
reasoning                 -              -
finish reason          stop         length
The answers differ from character 3 on; the first has 4 characters, the replay 5.
"""
    )
    asked = [body for _, path, body in daemon.calls if path == "/api/replay"]
    assert asked == [{"request": "c3", "on": "qwen"}, {"request": "c3", "on": "qwen", "begin": True}]


def test_a_replay_as_json_and_one_that_failed(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.replayed = daemon.replayed.replace(original=FIRST, answer=AGAIN, match=match_answers("same", "same"))
    done = sparkdash("requests", "--replay", "c3", "--on", "qwen", "--json")
    assert (done.code, done.json()["match"]["identical"], done.json()["answer"]["id"]) == (0, True, "d4")
    assert "The answers are identical: 4 characters." in sparkdash("requests", "--replay", "c3", "--on", "qwen").out
    failed = Request(id="d5", client="sparkdash-replay", profile="qwen", route="/v1/chat/completions",
                     state=RequestState.FAILED, started_at=BIRTH, error="does_not_fit")  # fmt: skip
    daemon.replayed = daemon.replayed.replace(answer=failed, match=None)
    done = sparkdash("requests", "--replay", "c3", "--on", "qwen")
    assert done.code == 1
    assert "The replay gave no whole answer: does_not_fit." in done.out


def test_a_request_that_was_not_captured_says_how_to_capture(sparkdash: Run, daemon: FakeDaemon) -> None:
    hint = "`capture = true` in config.toml keeps the bodies of requests from the daemon's next start on."
    daemon.errors["/api/replay"] = (404, {"message": "It was not captured.", "code": "not_captured", "hint": hint})
    done = sparkdash("requests", "--replay", "c3", "--on", "qwen")
    assert done.code != 0
    assert "`capture = true`" in done.err
