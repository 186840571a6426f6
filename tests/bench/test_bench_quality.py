"""A run's answers judged against the baseline's, and its cells against the roofline."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from sparkdash.bench.accuracy import Gate
from sparkdash.bench.ceiling import ceiling
from sparkdash.bench.maths import SCORER, Stratum, question
from sparkdash.bench.order import launch_order
from sparkdash.bench.quality import equalities, qualities
from sparkdash.bench.results import (
    Arm,
    Cell,
    CellKey,
    Kind,
    Launch,
    Mode,
    PlannedCell,
    Provenance,
    Results,
    Run,
    Sample,
    gather,
)
from sparkdash.domain.weights import Attention, KvLayers, WeightBytes, WeightFacts

AT = datetime(2026, 11, 21, 20, 0, tzinfo=UTC)
MATH = CellKey(suite="math", context=0, output=512, kind=Kind.MATH)
SAME = CellKey(suite="identical", context=0, output=64, kind=Kind.IDENTICAL)
SPEED = CellKey(suite="seeds", context=2048, output=400)
FACTS = WeightFacts(
    origin="by hand",
    format="safetensors",
    bytes=WeightBytes(dense=9_000_000_000, head=1_000_000_000, draft=500_000_000),
    kv=(KvLayers(kind=Attention.FULL, layers=10, key_elements=1000, value_elements=1000),),
)


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
        order=launch_order(arms, Mode.SCREEN),
        cells=tuple(PlannedCell(key=key, reps=1) for key in keys),
    )


def answered(key: CellKey, prompts: list[str], say: Callable[[str, int], str]) -> Results:
    """Both arms answer every prompt with what `say` makes of arm and place."""
    run = a_run(key)
    records: list[Launch | Sample | Cell] = []
    for launch, slot in enumerate(run.order):
        for rep, prompt in enumerate(prompts):
            text = say(slot.arm, rep)
            records.append(Sample(cell=key, arm=slot.arm, launch=launch, rep=rep, prompt_id=prompt, t0_ns=0, text=text))
        records.append(Cell(key=key, arm=slot.arm, launch=launch, started_at=AT, ended_at=AT))
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
        Stratum.PRODUCT: (0, 40),
        Stratum.WORDS: (40, 40),
    }
    assert eagle.verdict is not None
    assert (eagle.verdict.gate, eagle.verdict.only_a[:2], eagle.verdict.only_b) == (Gate.FAIL, ("1", "2"), ())


def test_what_is_no_question_is_not_judged() -> None:
    """Without answers there is nothing to say."""
    assert qualities(answered(MATH, ["warm-up"], lambda _arm, _rep: "ANSWER: 1")) == ()
    assert qualities(gather(a_run(MATH), [])) == ()


def test_outputs_are_compared_prompt_by_prompt() -> None:
    """One of three parts after four characters."""
    (found,) = equalities(answered(SAME, ["a", "b", "c"], lambda arm, rep: "same" + (arm if rep == 1 else "")))
    assert (found.arm, found.identity.n, found.identity.same, found.identity.divergence) == ("eagle", 3, 2, 4)
    assert equalities(gather(a_run(SAME), [])) == ()


def timed(provenance: Provenance, **counted: int) -> Results:
    """One launch of `plain` with 2,048 prompt and 400 completion tokens."""
    one = Sample(cell=SPEED, arm="plain", launch=0, rep=0, prompt_id="p", t0_ns=0, n=400, prompt_tokens=2048)
    done = Cell.model_validate({"key": SPEED, "arm": "plain", "launch": 0, "started_at": AT, "ended_at": AT, **counted})
    launch = Launch(arm="plain", index=0, block=0, started_at=AT, provenance=provenance)
    return gather(a_run(SPEED, arms=("plain",)), [launch, one, done])


PLAIN = Provenance(fingerprint="f00d", weights=FACTS, kv_dtype="fp8")


def test_the_ceiling_of_a_plain_cell() -> None:
    """Weights, and an FP8 cache of 2,248 tokens: halfway through the answer."""
    found = ceiling(timed(PLAIN), "plain", SPEED)
    assert found is not None
    assert found.step.total == 10_000_000_000 + 2248 * 10 * 2000
    assert found.peak_tok_s == pytest.approx(273e9 / found.step.total)


def test_the_ceiling_of_a_speculating_cell() -> None:
    """Two drafts a step by the counters; each reads the MTP layer and the head; 2.44 tokens come of it."""
    mtp = PLAIN.model_copy(update={"speculation": "mtp x 2"})
    found = ceiling(timed(mtp, drafts=100, draft_tokens=200, accepted_tokens=144), "plain", SPEED)
    assert found is not None
    assert found.step.draft == 2 * (500_000_000 + 1_000_000_000)
    assert found.acceptance_length == pytest.approx(2.44)
    ngram = PLAIN.model_copy(update={"speculation": "ngram x 2"})
    cheap = ceiling(timed(ngram, drafts=100, draft_tokens=200, accepted_tokens=144), "plain", SPEED)
    assert cheap is not None
    assert cheap.step.draft == 0
    eagle = PLAIN.model_copy(update={"speculation": "eagle3 x 2", "drafter": FACTS})
    own = ceiling(timed(eagle, drafts=100, draft_tokens=200, accepted_tokens=144), "plain", SPEED)
    assert own is not None
    assert own.step.draft == 2 * 10_000_000_000


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": None},
        {"kv_dtype": None},
        {"kv_dtype": "auto"},
        {"speculation": "eagle3 x 1"},
    ],
    ids=["no headers", "no dtype", "unresolved dtype", "no counters"],
)
def test_a_term_that_is_not_known_leaves_no_ceiling(changes: dict[str, object]) -> None:
    assert ceiling(timed(PLAIN.model_copy(update=changes)), "plain", SPEED) is None


def test_a_drafter_that_is_not_known_leaves_no_ceiling() -> None:
    eagle = PLAIN.model_copy(update={"speculation": "eagle3 x 1"})
    assert ceiling(timed(eagle, drafts=10, draft_tokens=10, accepted_tokens=5), "plain", SPEED) is None
    assert ceiling(gather(a_run(SPEED), []), "plain", SPEED) is None
