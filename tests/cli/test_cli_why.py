"""`sparkdash why`: the sum, the box, who leaves."""

from collections.abc import Callable
from typing import Any

from fake_daemon import BIRTH, GIB, FakeDaemon, engine

from sparkdash.domain.engine import EngineState, Failure, Incident, Parked
from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.swap import Plan, Start, Step

Run = Callable[..., Any]

WEIGHTS = Term(name="weights", bytes=30 * GIB, source="model card")
KV = Term(name="kv", bytes=10 * GIB, source="--kv-cache-memory-bytes 10G")
PLAN = Plan(
    profile="new", evict=("old",), reasons={"old": "idle for 12m34s; it frees 40.0 GiB"}, beside=("small",),
    need=Need(basis=Basis.DECLARED, terms=(WEIGHTS, KV)), needs_bytes=40 * GIB, now_bytes=20 * GIB,
    reserve_bytes=10 * GIB, available_bytes=50 * GIB, fits=True, verdict="It fits once old has left, beside small.",
    expected_s=220,
)  # fmt: skip


def start(**seconds: float) -> Start:
    return Start(stages=tuple(Step(name=name, s=s) for name, s in seconds.items()))


def test_every_figure_that_the_verdict_rests_on_is_told(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.plans["new"] = PLAN
    done = sparkdash("why", "new")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "new",
        "  need            40.0 GiB, declared",
        "    weights        30.0 GiB  model card",
        "    kv             10.0 GiB  --kv-cache-memory-bytes 10G",
        "  available now   20.0 GiB",
        "  reserve         10.0 GiB, kept free (`reserve_gib` in config.toml)",
        "  leaves          old: idle for 12m34s; it frees 40.0 GiB",
        "  stays           small",
        "  available then  50.0 GiB, without the reserve",
        "  takes about     3m40s",
        "It fits once old has left, beside small.",
    ]
    assert Plan.model_validate(sparkdash("why", "new", "--json").json()) == PLAN
    told = sparkdash("use", "new", "--yes", "--no-wait").err
    assert "  old: idle for 12m34s; it frees 40.0 GiB.\n" in told
    assert "It runs beside small.\n" in told


def test_a_slow_start_is_taken_apart_with_what_would_shorten_it(sparkdash: Run, daemon: FakeDaemon) -> None:
    """The box's own record comes before published figures."""
    slow = start(container=0.4, process=20, weights=150, compile=92, kv=3).replace(
        compiled=True, first_on_image=True, disk_bytes=60 * GIB, peak_bytes=70 * GIB
    )
    daemon.whole["qwen"] = Profile(name="qwen", engine=EngineKind.VLLM)
    daemon.plans["qwen"] = Plan(profile="qwen", starts=(slow, start(weights=148, compile=6)))
    done = sparkdash("why", "qwen", "--slow")
    assert (done.code, done.err) == (0, "")
    told = done.out.splitlines()
    assert told[0] == "qwen: its last start took 4m25s"
    assert told[3] == "  weights           150.0 s   57 %"
    assert told[6:9] == [
        "  seen            first start on this image",
        "                  graphs compiled anew",
        "                  60 GiB read from a disk, 410 MiB/s",
    ]
    told = " ".join(done.out.split())
    assert "weights 2m30s. Write `load-format: instanttensor`" in told
    assert "About 1m55s less. (published: 4m51s to 1m06s, 164 GiB on two Sparks" in told
    assert "compile 1m32s. Keep its cache folder" in told
    assert "About 1m26s less. (this box: 6.0s in another of its last 2 starts)" in told


def test_a_stage_that_no_change_is_known_for_may_have_been_quicker_before(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.whole["qwen"] = Profile(name="qwen", engine=EngineKind.VLLM)
    daemon.plans["qwen"] = Plan(profile="qwen", starts=(start(process=9, server=2.4), start(process=1.4, server=2.4)))
    told = " ".join(sparkdash("why", "qwen", "--slow").out.split())
    assert "process 9.0s. It took less before (this box: 1.4s in another of its last 2 starts)" in told
    assert "server 2.4s. No change is known that shortens it." in told


def test_a_profile_that_never_started_here_has_no_slow_start(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.whole["qwen"] = Profile(name="qwen", engine=EngineKind.VLLM)
    daemon.plans["qwen"] = Plan(profile="qwen")
    assert "No start of qwen is recorded." in sparkdash("why", "qwen", "--slow").out


def test_a_hold_of_the_memory_guard_comes_first_and_what_a_request_waits_for_is_told(
    sparkdash: Run, daemon: FakeDaemon
) -> None:
    words = {"held": "new is not started while memory is short.", "requests_wait": "old is in use; it waits up to 40s"}
    daemon.plans["new"] = PLAN.model_copy(update=words)
    told = sparkdash("why", "new").out.splitlines()
    assert told[:2] == ["new", "  held back       new is not started while memory is short."]
    assert "  requests wait   old is in use; it waits up to 40s" in told
    assert words["held"] in sparkdash("use", "new", "--yes", "--no-wait").err


FAILURE = Failure(code="engine_stuck", message="new hung.", hint="Try another build.", evidence="/state/incidents/1")


def test_the_last_failure_and_its_evidence_are_told(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.plans["new"] = PLAN
    daemon.set(engines={"new": engine("new", EngineState.FAILED, since=BIRTH, failure=FAILURE)}, at=BIRTH + 90)
    told = sparkdash("why", "new").out
    assert "  last failure    1m30s ago: new hung.\n                  Try another build.\n" in told
    assert "  evidence        /state/incidents/1\n" in told
    daemon.set(engines={}, parked={"new": Parked(since=BIRTH, failures=2, failure=FAILURE)})
    assert "  last failure    new hung.\n" in sparkdash("why", "new").out


def test_the_evidence_of_a_repaired_engine_is_named_for_a_day(sparkdash: Run, daemon: FakeDaemon) -> None:
    daemon.plans["new"], daemon.log_lines = PLAN, ["line"]
    hung = Incident(
        id="1", profile="new", fingerprint="f", began=BIRTH, named_at=BIRTH, why="it stood", evidence="/i/1"
    )
    other = hung.replace(id="2", profile="old", evidence="/i/2")
    daemon.set(engines={"new": engine("new")}, incidents=(other, hung), at=BIRTH + 60)
    assert "  evidence        /i/1\n" in sparkdash("why", "new").out
    done = sparkdash("logs", "new")
    assert (done.out, done.err) == ("line\n", "Evidence of its last incident: /i/1\n")
    assert sparkdash("logs", "new", "-f").err == ""
    daemon.set(at=BIRTH + 90_000)
    assert "/i/1" not in sparkdash("why", "new").out
    assert sparkdash("logs", "new").err == ""
