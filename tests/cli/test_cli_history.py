"""`sparkdash history` and `requests`: figures, events and incidents of the past, one request ended, and one sent again."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from fake_daemon import BIRTH, GIB, FakeDaemon, engine
from recorded import START, asked

from sparkdash.cli.history_tables import parse_moment, parse_period
from sparkdash.domain.engine import (
    Incident,
    IncidentEnd,
    IncidentList,
    Liveness,
    LivenessState,
    RepairStep,
    TakenStep,
    summarize_repairs,
)
from sparkdash.domain.event import Level
from sparkdash.domain.history import (
    MarkKind,
    MarkList,
    PastRequests,
    Quantiles,
    TimelineMark,
    UsageReport,
    UsageTotals,
    match_answers,
)
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.swap import Plan
from sparkdash.errors import AdmissionError

Run = Callable[..., Any]
ALPHA = UsageTotals(
    group="alpha", requests=120, errors=3, prompt_tokens=1_200_000, cached_tokens=600_000, output_tokens=90_000,
    reasoning_tokens=500, energy_wh=12.3, waited=7, wait_total_s=70, wait_s=Quantiles(count=7, p50=9, p90=12, p95=31, p99=31),
    ttft_s=Quantiles(count=117, p50=0.4, p90=1.0, p95=2.5, p99=4.0),
    decode_tok_s=Quantiles(count=117, p50=51.25, p90=60, p95=61, p99=62),
)  # fmt: skip
BETA = UsageTotals(group="beta/fast", requests=2)


def query(daemon: FakeDaemon) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(daemon.calls[-1][1]).query).items()}


def test_requests_are_added_up_with_their_total(sparkdash: Run, daemon: FakeDaemon) -> None:
    total = ALPHA.replace(group="all", requests=122)
    daemon.past["usage"] = UsageReport(
        since=0, until=1, by="profile", rows=(ALPHA, BETA), total=total, busy_wh=15.04, idle_wh=4.0
    )
    done = sparkdash("history")
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0][0] == "profile"
    assert [line[:2] for line in lines[1:4]] == [["alpha", "120"], ["beta/fast", "2"], ["all", "122"]]
    assert "51.2" in lines[1]
    assert "-" in lines[2]
    assert "Energy: 15.0 Wh while requests ran, 4.0 Wh while none ran. Quantiles are within 1 %." in done.out
    assert "Left out to fit 80 columns: Wh" in done.err
    told = query(daemon)
    assert told["by"] == "profile"
    assert float(told["until"]) - float(told["since"]) == pytest.approx(86400)


def test_a_period_a_profile_and_a_client_are_asked_for(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.past["usage"] = UsageReport(since=0, until=1, by="day")
    done = sparkdash(
        "history", "--by", "day", "--since", "7d", "--until", "1d", "--profile", "beta/fast", "--client", "codex"
    )
    assert done.out == "No request ended in this period.\n"
    told = query(daemon)
    assert (told["profile"], told["client"], told["by"]) == ("beta/fast", "codex", "day")
    assert float(told["until"]) - float(told["since"]) == pytest.approx(6 * 86400)
    assert int(told["offset_s"]) == datetime.now().astimezone().utcoffset().total_seconds()  # type: ignore[union-attr]


def test_json_has_every_request_of_the_period_and_a_table_the_newest(sparkdash: Run, daemon: FakeDaemon) -> None:
    made = [asked(n, START + n) for n in range(3)]
    pages = [PastRequests(requests=(made[2], made[1]), next="2:2"), PastRequests(requests=(made[0],))]
    daemon.past["requests"] = list(pages)
    rows = sparkdash("history", "--by", "request", "--json").json()
    assert [row["id"] for row in rows] == [one.id for one in reversed(made)]
    assert query(daemon)["after"] == "2:2"
    daemon.past["requests"] = list(pages)
    shown = sparkdash("history", "--by", "request").out
    assert shown.count("codex") == 2
    assert "There are more" in shown


def test_events_are_listed(sparkdash: Run, daemon: FakeDaemon) -> None:
    mark = TimelineMark(kind=MarkKind.KILL, at=START, profile="a", level=Level.ERROR, code="guard_kill", text="Short.")
    daemon.past["marks"] = MarkList(marks=(mark,), cut=True)
    shown = sparkdash("history", "--by", "event").out
    assert "guard_kill  Short." in shown
    assert "Older events" in shown


def test_a_time_that_is_none_is_refused_with_the_forms(sparkdash: Run, daemon: FakeDaemon) -> None:
    for argv in (("--since", "yesterday"), ("--since", "1d", "--until", "2d")):
        done = sparkdash("history", *argv)
        assert done.code == 3
        assert "Hint:" in done.err
    assert daemon.calls == []


def test_moments_are_ages_or_dates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    now = 1_790_000_000.0
    assert parse_moment("now", now) == now
    assert [now - parse_moment(text, now) for text in ("90s", "1.5h", "2w")] == [90, 5400, 14 * 86400]
    assert parse_moment("2026-09-21", now) == 1_789_948_800
    assert parse_moment("2026-09-21T15:00+01:00", now) == 1_789_999_200
    assert parse_moment("9999999d", now) == 0
    assert parse_period("1h", "now", now).offset_s == 0
    for text in ("", "-1d", "1y", "99999-01-01"):
        with pytest.raises(AdmissionError):
            parse_moment(text, now)


NOW = BIRTH + 3700
WHY = "2 running, 0 waiting, no token and no change of the KV cache for 2m05s, GPU 14 W at 96 %"
LIVE = Liveness(state=LivenessState.STUCK, why=WHY, since=NOW - 165, step=RepairStep.CANCEL, step_since=NOW - 40)


def stood_still() -> tuple[Incident, Incident]:
    """One that is being repaired, and one that is over; their ages are those of this moment."""
    now = time.time()
    base = Incident(id="2", profile="gpt-oss", fingerprint="f", began=now - 3852, named_at=now - 7230, why=WHY)
    restart, cancel = TakenStep(step=RepairStep.END, at=now - 3700), TakenStep(step=RepairStep.CANCEL, at=now - 3630)
    over = base.replace(
        id="1", profile="qwen", named_at=now - 3720, steps=(restart,), ended_at=now - 3600, end=IncidentEnd.RESTARTED,
        note="It was started again.", evidence="/state/evidence/qwen-1",
    )  # fmt: skip
    return base.replace(steps=(cancel,)), over


def given(daemon: FakeDaemon) -> tuple[Incident, Incident]:
    """A stuck engine with a request on it, and one that was repaired."""
    incidents = stood_still()
    waits = {"client": "codex", "route": "chat", "state": RequestState.WAITING, "started_at": NOW, "position": 1}
    daemon.set(
        at=NOW, engines={"qwen": engine("qwen").replace(liveness=LIVE)}, incidents=incidents,
        requests={"1": Request(id="1", profile="qwen", **waits)}, repairs=summarize_repairs(incidents),
    )  # fmt: skip
    return incidents


def test_each_incident_has_how_it_ended_and_what_was_seen(sparkdash: Run, daemon: FakeDaemon) -> None:
    given(daemon)
    told = sparkdash("history", "--by", "incident").out
    words = " ".join(told.split())
    assert told.splitlines()[0].split() == ["when", "profile", "how", "it", "ended", "what", "was", "seen"]
    assert "2h00m ago gpt-oss requests cancelled, looking again 1h00m" in words
    assert "1h02m ago qwen restarted after 4m12s" in words
    assert "/state/evidence/qwen-1" in words
    assert told.splitlines()[-1] == "1 repair, 4m12s on average."
    assert "gpt-oss" not in sparkdash("history", "--by", "incident", "--profile", "qwen").out


def test_json_is_what_the_api_says(sparkdash: Run, daemon: FakeDaemon) -> None:
    incidents = given(daemon)
    kept = IncidentList.model_validate_json(sparkdash("history", "--by", "incident", "--json").out)
    assert kept == IncidentList(incidents=incidents, repairs=summarize_repairs(incidents))


def test_a_period_in_which_no_engine_stood_still_says_so(sparkdash: Run, daemon: FakeDaemon) -> None:
    given(daemon)
    done = sparkdash("history", "--by", "incident", "--since", "3d", "--until", "1d")
    assert done.out == "No engine was stuck in this period.\n"


def test_status_says_since_when_it_is_stuck_and_what_is_done(sparkdash: Run, daemon: FakeDaemon) -> None:
    given(daemon)
    lines = sparkdash("status").out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("liveness"))
    assert lines[at : at + 4] == [
        "liveness  stuck for 2m45s: 2 running, 0 waiting, no token and no change of the",
        "          KV cache for 2m05s, GPU 14 W at 96 %",
        "          requests cancelled, looking again 40s",
        "memory    -",
    ]
    assert any("waits #1, engine stuck: requests cancelled, looking again 40s" in line for line in lines)


def test_requests_name_the_stuck_engine_that_they_wait_for(sparkdash: Run, daemon: FakeDaemon) -> None:
    given(daemon)
    assert "waits #1, engine stuck: requests cancelled, looking again 40s" in sparkdash("requests").out


def test_an_engine_that_works_is_not_spoken_of(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.set(at=NOW, engines={"qwen": engine("qwen").replace(liveness=Liveness(state="busy", since=NOW))})
    assert "liveness" not in sparkdash("status").out


def test_why_says_it_too(sparkdash: Run, daemon: FakeDaemon) -> None:
    given(daemon)
    daemon.plans["qwen"] = Plan(profile="qwen", now_bytes=GIB, reserve_bytes=GIB, fits=True, verdict="It runs.")
    told = " ".join(sparkdash("why", "qwen").out.split())
    assert f"its engine stuck for 2m45s: {WHY} requests cancelled, looking again 40s" in told
    assert "was stuck 1 repair, 4m12s on average" in told


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
