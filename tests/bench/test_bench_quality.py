"""A run's answers judged against the baseline's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from sparkdash.bench.judge.accuracy import SCORER, AccuracyGate, qualities
from sparkdash.bench.plan.math_questions import Stratum, question
from sparkdash.bench.results import CellRecord, LaunchRecord, RequestSample, Results, gather
from sparkdash.bench.run import Arm, CellKey, Kind, Mode, PlannedCell, Run
from tests.shared.alternating import alternating

AT = datetime(2026, 11, 21, 20, 0, tzinfo=UTC)
MATH = CellKey(suite="math", context=0, output=512, kind=Kind.MATH)


def a_run(*keys: CellKey, arms: tuple[str, ...] = ("plain", "eagle")) -> Run:
    return Run(
        id="x",
        suite="own",
        suite_version="1",
        suite_hash="5eed",
        arms=tuple(Arm(name=arm, profile=arm) for arm in arms),
        baseline="plain",
        mode=Mode.SCREEN,
        seed=42,
        created_at=AT,
        order=alternating(arms, Mode.SCREEN),
        cells=tuple(PlannedCell(key=key, reps=1) for key in keys),
    )


def answered(key: CellKey, prompts: list[str], say: Callable[[str, int], str]) -> Results:
    """Both arms answer every prompt with what `say` makes of arm and place."""
    run = a_run(key)
    records: list[LaunchRecord | RequestSample | CellRecord] = []
    for launch, slot in enumerate(run.order):
        for rep, prompt in enumerate(prompts):
            text = say(slot.arm, rep)
            records.append(
                RequestSample(cell=key, arm=slot.arm, launch=launch, rep=rep, prompt_id=prompt, t0_ns=0, text=text)
            )
        records.append(CellRecord(key=key, arm=slot.arm, launch=launch, started_at=AT, ended_at=AT))
    return gather(run, records)


def test_answers_are_judged_against_the_baselines() -> None:
    """Eagle gets every product wrong that plain gets right: by stratum it shows, and the gate fails."""
    asked = [question(42, number) for number in range(100)]

    def say(arm: str, rep: int) -> str:
        off = arm == "eagle" and asked[rep].stratum is Stratum.PRODUCT
        return f"Well.\nANSWER: {asked[rep].answer + off}"

    plain, eagle = qualities(answered(MATH, [one.id for one in asked], say))
    assert (plain.all.right, plain.verdict, plain.scorer) == (100, None, SCORER)
    assert {kind: (one.right, one.n) for kind, one in eagle.strata.items()} == {
        Stratum.SUM: (20, 20),
        Stratum.PRODUCT: (0, 80),
    }
    assert eagle.verdict is not None
    assert (eagle.verdict.gate, eagle.verdict.only_a[:2], eagle.verdict.only_b) == (AccuracyGate.FAIL, ("1", "2"), ())


def test_what_is_no_question_is_not_judged() -> None:
    """Without answers there is nothing to say."""
    assert qualities(answered(MATH, ["warm-up"], lambda _arm, _rep: "ANSWER: 1")) == ()
    assert qualities(gather(a_run(MATH), [])) == ()
