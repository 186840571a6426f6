"""`sparkdash history --by incident`, and what `status`, `requests` and `why` say of an engine that is stuck."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fake_daemon import BIRTH, GIB, FakeDaemon, engine

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
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.swap import Plan

Run = Callable[..., Any]
NOW = BIRTH + 3700
WHY = "2 running, 0 waiting, no token and no change of the KV cache for 2m05s, GPU 14 W at 96 %"
LIVE = Liveness(state=LivenessState.STUCK, why=WHY, since=NOW - 165, step=RepairStep.CANCEL, step_since=NOW - 40)


def stood_still() -> tuple[Incident, Incident]:
    """One that is being repaired, and one that is over; their ages are those of this moment."""
    now = time.time()
    over = Incident(
        id="1",
        profile="qwen",
        fingerprint="f",
        began=now - 3852,
        named_at=now - 3720,
        why=WHY,
        steps=(TakenStep(step=RepairStep.END, at=now - 3700),),
        ended_at=now - 3600,
        end=IncidentEnd.RESTARTED,
        note="It was started again.",
        evidence="/state/evidence/qwen-1",
    )
    stuck = over.replace(
        id="2",
        profile="gpt-oss",
        named_at=now - 7230,
        steps=(TakenStep(step=RepairStep.CANCEL, at=now - 3630),),
        ended_at=None,
        end=None,
        note="",
        evidence=None,
    )
    return stuck, over


def given(daemon: FakeDaemon) -> tuple[Incident, Incident]:
    """A stuck engine with a request on it, and one that was repaired."""
    incidents = stood_still()
    daemon.set(
        at=NOW,
        engines={"qwen": engine("qwen").replace(liveness=LIVE)},
        requests={
            "1": Request(id="1", client="codex", profile="qwen", route="chat", state=RequestState.WAITING,
                         started_at=NOW, position=1),
        },
        incidents=incidents,
        repairs=summarize_repairs(incidents),
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
    assert "repairs   1 repair, 4m12s on average" in lines
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
