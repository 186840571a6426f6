"""Mistakes in a measurement that was asked for, before anything is measured. `tests/e2e` measures."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_daemon import BIRTH, FakeDaemon, engine, summary

from sparkdash.bench import run_folder
from sparkdash.bench.measure import box_lease
from sparkdash.bench.plan import run_plan, suites
from sparkdash.bench.results import LaunchRecord, Provenance, Results
from sparkdash.bench.run import Arm, Mode, Run
from sparkdash.catalog import load_catalog
from sparkdash.cli.bench import measure
from sparkdash.cli.bench.measure import run_to_resume
from sparkdash.cli.bench.progress import arm_letters, plan_document, print_plan
from sparkdash.client.address import Address
from sparkdash.client.client import AsyncClient
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.swap import Plan
from sparkdash.errors import SparkdashError


@pytest.mark.parametrize(("argv", "code", "words"), [
    (("ab", "plain"), 2, "at least two"), (("ab", "plain", "nobody", "--yes"), 3, "nobody"),
    (("bench", "plain", "--suite", "smok"), 3, "Did you mean smoke?"),
    (("bench", "resume", "2001"), 3, "There is no run 2001. Hint: `sparkdash bench PROFILE` makes the first one."),
])  # fmt: skip
def test_a_mistake_is_told_without_a_traceback(
    sparkdash: Callable[..., Any], daemon: FakeDaemon, argv: tuple[str, ...], code: int, words: str
) -> None:
    daemon.set(profiles=(summary("plain"),))
    daemon.whole["plain"] = Profile(name="plain", engine=EngineKind.SIM)
    unknown = {"message": "There is no profile nobody.", "code": "model_not_found"}
    daemon.errors["/api/profiles/nobody"] = (404, unknown)
    done = sparkdash(*argv)
    assert done.code == code, done.err
    assert words in " ".join(done.err.split())
    assert run_folder.list_runs() == [], "nothing was measured"


def test_the_suites_fit_the_terminal(sparkdash: Callable[..., Any]) -> None:
    head, *lines = sparkdash("bench", "suites").out.splitlines()
    assert max(map(len, lines)) < 80
    about = head.index("ABOUT")
    assert {line[about - 2 : about] for line in lines} == {"  "}
    assert "seeds" in [one["suite"] for one in sparkdash("bench", "suites", "--json").json()]


def test_a_suite_from_a_file_is_found_by_its_run(sparkdash: Callable[..., Any], own_folders: Path) -> None:
    file = own_folders / "a suite.yaml"
    file.write_text("suite: mine\nversion: 1\nabout: words\ncells: [{output: 8}]\n")
    suite, kept = suites.load_suite(str(file)), suites.suite_path(str(file))
    place = run_folder.create_run_folder(run_plan.new_run(suite, ARMS, Mode.SCREEN, suite_file=kept))
    assert "No sparkdash daemon answers" in sparkdash("bench", "resume").err
    assert run_folder.list_runs() == [place], "it was there before"
    file.unlink()
    assert str(file) in sparkdash("bench", "resume").err


@pytest.mark.parametrize(("before", "now", "stopped", "used"), [
    (("plain",), (), [], ["plain"]), (("plain",), ("fast",), ["fast"], ["plain"]), ((), ("fast",), ["fast"], []),
    (("fast", "plain"), ("fast",), [], ["plain"]), (("plain", "speech"), ("fast",), ["fast"], ["speech", "plain"]),
    (("plain",), ("plain", "other"), [], []),
], ids=["evicted", "replaced", "empty before", "measured and served", "two of them", "another's engine stays"])  # fmt: skip
async def test_the_box_is_put_back_as_it_was_before_the_benchmark(
    daemon: FakeDaemon, before: tuple[str, ...], now: tuple[str, ...], stopped: list[str], used: list[str]
) -> None:
    engines = {name: engine(name, ready_at=BIRTH + (name == "plain")) for name in before}
    daemon.set(profiles=tuple(map(summary, ("plain", "fast", "speech"))), engines=engines)
    async with AsyncClient(daemon.url) as client:
        ran = measure.running_profiles(await client.state())
        daemon.set(engines={name: engine(name) for name in now})
        async with AsyncExitStack() as after:
            await measure.restore_box(client, ran, {"plain", "fast"}, after)
    orders = [(path, body) for method, path, body in daemon.calls if method == "POST"]
    assert [body["profile"] for path, body in orders if path == "/api/stop"] == stopped
    assert [body for path, body in orders if path == "/api/use"] == [
        {"profile": name, "cause": "bench"} for name in used
    ]


async def test_what_is_not_brought_back_is_told_with_its_command(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.set(profiles=(summary("plain"),), engines={"plain": engine("plain")})
    daemon.errors["/api/use"] = (409, {"message": "plain does not fit.", "code": "does_not_fit"})
    async with AsyncClient(daemon.url) as client:
        ran = measure.running_profiles(await client.state())
        daemon.set(engines={"fast": engine("fast")})
        daemon.errors["/api/stop"] = (500, {"message": "podman is silent.", "code": "runtime_failed"})
        async with AsyncExitStack() as after:
            await measure.restore_box(client, ran, {"fast"}, after)
    said = " ".join(capsys.readouterr().err.split())
    assert "fast was measured and still runs: podman is silent. `sparkdash stop fast` tries it again." in said
    assert "plain was not brought back: plain does not fit. `sparkdash use plain` tries it again." in said


async def test_the_last_engine_that_does_not_come_back_is_told_when_its_load_has_failed(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others may use the box while it loads, so the load is waited for after the report."""
    daemon.set(profiles=(summary("plain"),))
    facts = daemon.breaks("plain")
    daemon.on_use = lambda _: facts[:1]
    async with AsyncClient(daemon.url) as client, AsyncExitStack() as after:
        await measure.restore_box(client, ["plain"], {"fast"}, after)
        assert "not brought back" not in capsys.readouterr().err
        daemon.publish(*facts[1:])
    assert "plain was not brought back" in " ".join(capsys.readouterr().err.split())


async def test_all_that_ran_is_named_when_the_daemon_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    async with AsyncClient("http://127.0.0.1:1") as client, AsyncExitStack() as after:
        await measure.restore_box(client, ["plain", "speech"], {"fast"}, after)
    said = " ".join(capsys.readouterr().err.split())
    assert "The box was not put back as it was" in said
    assert "`sparkdash use plain && sparkdash use speech`" in said


async def test_who_waits_for_another_measurement_says_so(daemon: FakeDaemon) -> None:
    why = "sparkdash bench (seeds) has this box to itself, to measure without other load."
    daemon.errors["/api/lease"] = (503, {"message": why, "code": "held"})
    said: list[str] = []
    pulse = box_lease.LeaseHeartbeat(expected_s=lambda: None, measuring=lambda: None, ends=lambda: None)
    async with AsyncClient(daemon.url) as client:
        with pytest.raises(SparkdashError) as refused:
            async with box_lease.hold_box(client, "me", {}, pulse, patience_s=1e-9, waits=said.append):
                pytest.fail("nobody let go")
    assert refused.value.code == "held"
    assert said == [why]


async def test_over_https_nothing_is_measured(daemon: FakeDaemon) -> None:
    client: Any = SimpleNamespace(address=Address("https://spark.lan:8484", given=True))
    with pytest.raises(SparkdashError, match="Over https") as refused:
        await measure.open_wire(client, daemon.bus.snapshot, {})
    assert refused.value.hint == "Measure on spark-1 itself."


def test_every_arm_has_a_mark() -> None:
    marks = arm_letters(f"n={value}" for value in range(60))
    assert [marks[f"n={value}"] for value in (0, 25, 26, 27, 52)] == ["A", "Z", "AA", "AB", "BA"]
    assert len(set(marks.values())) == 60


ARMS = (Arm(name="A", profile="a"), Arm(name="B", profile="b"))


def planned(mode: Mode, seed: int = 1, arms: int = 2) -> Run:
    return run_plan.new_run(suites.load_suite("smoke"), ARMS[:arms], mode, seed=seed)


@pytest.fixture
def stopped(own_folders: Path) -> Path:
    """An unfinished run in mode standard."""
    assert own_folders.is_dir()
    return run_folder.create_run_folder(planned(Mode.STANDARD))


@pytest.mark.parametrize("other", [{}, {"mode": Mode.CAREFUL}, {"seed": 2}, {"arms": 1}])
def test_the_same_question_is_resumed_and_another_one_begins_a_new_run(
    stopped: Path, capsys: pytest.CaptureFixture[str], other: dict[str, Any]
) -> None:
    assert run_to_resume(planned(**{"mode": Mode.STANDARD, **other}), {}) == (None if other else stopped)
    assert (f"Resuming {stopped.name}" in capsys.readouterr().err) is not bool(other)


def launched_once(place: Path, arm: str, fingerprint: str = "0" * 12) -> None:
    known = Provenance(fingerprint=fingerprint)
    with run_folder.Journal(place) as journal:
        journal.append(LaunchRecord(arm=arm, index=0, block=0, started_at="2026-11-21T20:00:00Z", provenance=known))


@pytest.mark.parametrize(
    ("now", "resumed"),
    [
        ({"fingerprint": "0" * 12}, True), ({"fingerprint": "edited"}, False),
        ({"fingerprint": "of two boxes", "fewer": {1: "0" * 12}}, True),
    ],
)  # fmt: skip
def test_a_run_whose_profile_was_edited_is_neither_resumed_nor_proposed(
    own_folders: Path, capsys: pytest.CaptureFixture[str], now: dict[str, Any], *, resumed: bool
) -> None:
    """A resumed run would be refused once its engine had started, after others were stopped for it."""
    profiles = {name: summary(name, **now) for name in ("a", "b")}
    run = run_plan.new_run(suites.load_suite("smoke"), run_plan.arms_of(["a", "b"], profiles), Mode.STANDARD)
    place = run_folder.create_run_folder(run)
    launched_once(place, "a")
    assert (run_to_resume(run.replace(id="new"), profiles) == place) is resumed
    assert (place.name in capsys.readouterr().err) is resumed


def test_a_resume_of_an_edited_profile_is_refused_before_anything_stops(
    sparkdash: Callable[..., Any], daemon: FakeDaemon
) -> None:
    daemon.set(profiles=(summary("a", fingerprint="edited"),), engines={"other": engine("other")})
    daemon.whole["a"] = Profile(name="a", engine=EngineKind.SIM)
    arms = run_plan.arms_of(["a"], {"a": summary("a")})
    launched_once(run_folder.create_run_folder(run_plan.new_run(suites.load_suite("smoke"), arms, Mode.SCREEN)), "a")
    done = sparkdash("bench", "resume", "--yes")
    assert (done.code, "a was edited since this run began" in " ".join(done.err.split())) == (3, True)
    assert not [path for method, path, _ in daemon.calls if method == "POST"]


def test_a_profile_that_lacks_boxes_is_refused_before_anything_stops(
    sparkdash: Callable[..., Any], daemon: FakeDaemon
) -> None:
    """The plan of the dashboard told the time of its load, the run stopped two engines, and then it could not start."""
    daemon.set(profiles=(summary("a"), summary("wide", nodes=2)), engines={"other": engine("other")})
    daemon.whole.update({name: Profile(name=name, engine=EngineKind.SIM) for name in ("a", "wide")})
    daemon.plans["wide"] = Plan(profile="wide", fits=False, verdict="It cannot start now: too few nodes.", expected_s=7)
    done = sparkdash("ab", "a", "wide", "--suite", "smoke", "--yes")
    assert (done.code, "wide cannot be measured. It cannot start now" in " ".join(done.err.split())) == (3, True)
    assert not [path for method, path, _ in daemon.calls if method == "POST"]


def test_a_report_proposes_no_resume_of_an_edited_profile(sparkdash: Callable[..., Any], own_folders: Path) -> None:
    file = own_folders / "config" / "profiles" / "a.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("profile: a\nengine: sim\n")
    arms = run_plan.arms_of(["a"], {"a": summary("a")})
    run = run_plan.new_run(suites.load_suite("smoke"), arms, Mode.SCREEN, simulated=True)
    launched_once(run_folder.create_run_folder(run), "a", load_catalog([file.parent]).profiles["a"].fingerprint)
    resume = f"`sparkdash bench resume {run.id}`"
    asked = [("bench", "show", "last"), ("bench", "show", "--matrix")]
    assert [resume in " ".join(sparkdash(*argv).out.split()) for argv in asked] == [True, True]
    file.write_text("profile: a\nengine: sim\ncontext: 4096\n")
    alone, merged = (" ".join(sparkdash(*argv).out.split()) for argv in asked)
    assert (resume in alone, resume in merged) == (False, False)
    assert "nothing fills them; measure anew" in alone
    assert "`sparkdash bench a --suite smoke`" in merged


def test_a_run_whose_suite_has_changed_names_no_command_that_would_be_refused(
    sparkdash: Callable[..., Any], own_folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = own_folders / "config" / "suites" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("suite: mine\nversion: 1\nabout: words\ncells: [{output: 8}]\n")
    run = run_plan.new_run(suites.load_suite("mine"), ARMS, Mode.STANDARD)
    run_folder.create_run_folder(run)
    assert "`sparkdash bench resume" in " ".join(sparkdash("bench", "show", "last").out.split())
    file.write_text("suite: mine\nversion: 2\nabout: words\ncells: [{output: 16}]\n")
    shown = " ".join(sparkdash("bench", "show", "last").out.split())
    assert "bench resume" not in shown
    assert "Suite or profile have changed since, so nothing fills them" in shown
    again = run_plan.new_run(suites.load_suite("mine"), ARMS, Mode.STANDARD)
    assert run_to_resume(again, {}) is None
    assert "bench resume" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "mode", "reps", "speculation", "told"),
    [
        ("seeds", Mode.STANDARD, None, "eagle3 k=1", "with five prompts in a cell"),
        ("seeds", Mode.STANDARD, 20, "eagle3 k=1", None), ("seeds", Mode.SCREEN, None, "eagle3 k=1", None),
        ("seeds", Mode.STANDARD, None, None, None), ("arena", Mode.STANDARD, None, None, None),
        ("smoke", Mode.CAREFUL, 20, None, "2 prompts in a cell cannot show which is better"),
    ],
)  # fmt: skip
def test_a_plan_says_how_little_few_prompts_show(
    daemon: FakeDaemon, capsys: pytest.CaptureFixture[str], name: str, mode: Mode, reps: int | None,
    speculation: str | None, told: str | None,
) -> None:  # fmt: skip
    """Five prompts show little of speculation. Fewer than a verdict needs show nothing, in every mode."""
    profiles = {"a": summary("a"), "b": summary("b", speculation=speculation)}
    daemon.set(profiles=tuple(profiles.values()))
    suite = suites.load_suite(name)
    run = run_plan.new_run(suite, run_plan.arms_of(["a", "b"], profiles), mode, reps=reps)
    print_plan(Results(run=run), suite, {}, None, daemon.bus.snapshot)
    note = plan_document(Results(run=run), suite, {}, None, daemon.bus.snapshot).note
    shown = " ".join(capsys.readouterr().err.split())
    assert (told in shown and told in (note or "")) if told else note is None
