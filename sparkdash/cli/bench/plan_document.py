"""Plan of a run as a document for programs: `sparkdash ab --dry-run --json`.

Owns: its fields' values. Must not know: how a run is measured.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkdash.api.answers import BenchPlan, PlannedArm, SuiteLine
from sparkdash.bench.plan import run_plan, suites
from sparkdash.bench.results import Results
from sparkdash.bench.run import Mode
from sparkdash.domain.state import Snapshot
from sparkdash.errors import ProfileError


def plan_document(
    results: Results,
    suite: suites.Suite,
    speeds: Mapping[str, run_plan.KnownSpeeds],
    expected_s: float | None,
    world: Snapshot | None,
) -> BenchPlan:
    """Describe what is left to measure of a run, the time for it, and what else could be measured."""
    run, gaps = results.run, results.gaps()
    known = {arm.name: speeds.get(arm.name, run_plan.KnownSpeeds()) for arm in run.arms}
    return BenchPlan(
        suite=suite.suite,
        about=suite.about,
        mode=run.mode.value,
        arms=tuple(
            PlannedArm(name=arm.name, impossible=arm.impossible, **known[arm.name].model_dump()) for arm in run.arms
        ),
        order=tuple(run.order[index].arm for index in run_plan.launches_left(results)),
        cells=len(run.cells),
        gaps=len(gaps),
        expected_s=expected_s,
        resumes=run.id if results.launches else None,
        stops=tuple(name for name, engine in world.engines.items() if engine.state != "failed") if world else (),
        simulated=run.simulated,
        suites=_suites(run.mode),
    )


def _suites(mode: Mode) -> tuple[SuiteLine, ...]:
    found = []
    for name in suites.suite_files():
        try:
            suite = suites.load_suite(name)
        except ProfileError:  # the owner's own, with a mistake that `--suite` tells
            continue
        found.append(SuiteLine(name=name, about=suite.about, cells=len(suite.planned(mode))))
    return tuple(found)
