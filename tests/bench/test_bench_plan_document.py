"""The plan of a run as a document, and the command that makes it for the daemon."""

from __future__ import annotations

from sparkdash.api.answers import BenchPlan
from sparkdash.api.requests import StartRunBody
from sparkdash.bench.plan import run_plan, suites
from sparkdash.bench.processes import _ab_command
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, Mode
from sparkdash.cli.bench.progress import plan_document


def test_a_plan_tells_launches_cells_time_and_the_other_suites() -> None:
    """Of a new run nothing is measured yet; an arm that cannot run has no launch."""
    suite = suites.load_suite("smoke")
    arms = (Arm(name="a", profile="a"), Arm(name="b", profile="b"), Arm(name="c", profile="c", impossible="no head"))
    run = run_plan.new_run(suite, arms, Mode.STANDARD)
    speeds = {"a": run_plan.KnownSpeeds(launch_s=60.0, decode_tok_s=50.0, source="published")}
    plan = plan_document(Results(run=run), suite, speeds, 600.0, None)
    assert BenchPlan.model_validate_json(plan.model_dump_json()) == plan
    assert plan.order == tuple(slot.arm for slot in run.order)
    assert sorted(plan.order) == ["a", "a", "a", "b", "b", "b"]
    assert (plan.cells, plan.gaps, plan.expected_s, plan.resumes) == (len(run.cells), 6 * len(run.cells), 600.0, None)
    assert [arm.impossible for arm in plan.arms] == [None, None, "no head"]
    assert (plan.arms[0].launch_s, plan.arms[1].launch_s) == (60.0, None)
    assert {"smoke", "seeds", "classes"} <= {one.name for one in plan.suites}


def test_names_of_profiles_are_never_options_of_the_command() -> None:
    """They stand behind `--`."""
    wish = StartRunBody(profiles=["--yes", "b"], suite="smoke", mode="careful", reps=3)
    words = _ab_command(wish, "--dry-run")
    assert words[-3:] == ["--", "--yes", "b"]
    assert words[4:-3] == ["--suite", "smoke", "--mode", "careful", "--reps", "3", "--dry-run", "--json"]
