"""Claims about arms whose truth is known, over hundreds of simulated runs; and their words."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sparkdash.bench.judge.arm_comparison import Contrast, fit_cell
from sparkdash.bench.judge.judgement import panels, shared_fits
from sparkdash.bench.judge.verdict import Conclusion, Verdict, judge_contrasts, screen_verdict
from sparkdash.bench.plan.run_plan import launch_order
from sparkdash.bench.run import CellKey, LaunchSlot, Mode

RUNS = 200

Trouble = Callable[[random.Random, int], Sequence[float]]
"""Disturbance that a box adds to ln y at each place of the order."""


LAUNCH_SD, CV, DRIFT = 0.006, 0.01, 0.015
"""From launch to launch, from request to request, and over a session while the box warms up."""


def simulated(
    rng: random.Random,
    names: str = "AB",
    mode: Mode = Mode.CAREFUL,
    *,
    effect: float = 0.0,
    drift: float = 0.0,
    thermal: bool = False,
    prompts: int = 5,
    launch_sd: float = LAUNCH_SD,
    cv: float = CV,
    unsteady: Mapping[str, float] | None = None,
    taste: Mapping[str, float] | None = None,
    trouble: Trouble | None = None,
) -> dict[str, dict[int, dict[str, float]]]:
    """tok/s by arm, launch and prompt. `effect` is ln(any other arm / A); a thermal drift comes early and levels off."""
    order = drawn(tuple(names), mode, rng.random() if len(names) == 2 else rng.randrange(25))
    texts = [rng.gauss(0, 0.05) for _ in range(prompts)]
    tastes = {name: [rng.gauss(0, (taste or {}).get(name, 0.0)) for _ in texts] for name in names}
    troubles = trouble(rng, len(order)) if trouble else [0.0] * len(order)
    found: dict[str, dict[int, dict[str, float]]] = {name: {} for name in names}
    for place, slot in enumerate(order):
        passed = place / (len(order) - 1)
        fallen = drift * (1 - math.exp(-5 * passed) if thermal else passed)
        level = math.log(65) - fallen + troubles[place] + rng.gauss(0, (unsteady or {}).get(slot.arm, launch_sd))
        level += 0.0 if slot.arm == "A" else effect
        found[slot.arm][place] = {
            str(number): math.exp(level + text + tastes[slot.arm][number] + rng.gauss(0, cv))
            for number, text in enumerate(texts)
        }
    return found


@cache
def drawn(names: tuple[str, ...], mode: Mode, number: float) -> tuple[LaunchSlot, ...]:
    """A single draw is compared; of more arms only one of 25, whose shuffles take a tenth of a second each."""
    return launch_order(names, mode, str(number))


def claims(names: str = "AB", runs: int = RUNS, seed: int = 1, **facts: Any) -> Counter[Conclusion]:
    """The claims on the last arm over many runs, each judged against A."""
    rng = random.Random(seed)
    return Counter(verdicts(rng, names, **facts)[-1].claim for _ in range(runs))


def verdicts(rng: random.Random, names: str = "AB", **facts: Any) -> list[Verdict]:
    found = fit_cell(simulated(rng, names, **facts))
    return judge_contrasts([one for name in names[1:] if (one := found.contrast(name, "A")) is not None])


def told(counted: Counter[Conclusion]) -> float:
    return sum(number for claim, number in counted.items() if claim.told) / counted.total()


def test_a_against_a_is_no_difference() -> None:
    """In at least 95 % of careful runs; what is left claims something false, or nothing."""
    assert claims()[Conclusion.NO_DIFFERENCE] >= 0.95 * RUNS


def test_two_per_cent_are_found() -> None:
    """In at least 70 % of careful runs, never with the wrong sign."""
    counted = claims(effect=0.02)
    assert counted[Conclusion.FASTER] >= 0.70 * RUNS
    assert counted[Conclusion.SLOWER] == 0
    assert claims(effect=-0.02)[Conclusion.SLOWER] >= 0.70 * RUNS


@pytest.mark.parametrize("mode", [Mode.STANDARD, Mode.CAREFUL])
@pytest.mark.parametrize("thermal", [False, True], ids=["linear", "levelling off"])
def test_drift_is_no_difference(mode: Mode, thermal: bool) -> None:
    """1.5 % a session, steady or as a box warms up: at most 5 % of 2,000 runs claim something."""
    assert told(claims(runs=2000, mode=mode, drift=DRIFT, thermal=thermal)) <= 0.05


def walk(rng: random.Random, launches: int) -> list[float]:
    return list(accumulate(rng.gauss(0, 0.005) for _ in range(launches)))


def step(rng: random.Random, launches: int) -> list[float]:
    """From one launch on everything is 1.5 % slower."""
    begins = rng.randrange(1, launches)
    return [-0.015 * (place >= begins) for place in range(launches)]


def cold(_: random.Random, launches: int) -> list[float]:
    return [-0.03] + [0.0] * (launches - 1)


def stray(rng: random.Random, launches: int) -> list[float]:
    return rng.sample(cold(rng, launches), launches)


@pytest.mark.parametrize("mode", [Mode.STANDARD, Mode.CAREFUL])
@pytest.mark.parametrize("trouble", [walk, step, cold, stray])
def test_no_trouble_of_the_box_is_a_difference(mode: Mode, trouble: Trouble) -> None:
    """Troubles that are no line through time either: at most 5 % of 1,000 runs claim something."""
    assert told(claims(runs=1000, mode=mode, trouble=trouble)) <= 0.05


def test_two_launches_of_each_arm_allow_no_claim() -> None:
    """A B B A, as runs were recorded before: its middle belongs to B alone, whatever the box did meanwhile."""
    found = simulated(random.Random(2), effect=0.1, mode=Mode.STANDARD)
    first = {arm: dict(list(launches.items())[:2]) for arm, launches in found.items()}
    assert fit_cell(first).contrast("B", "A") is None
    assert fit_cell({**found, "B": first["B"]}).contrast("B", "A") is None
    assert fit_cell(found).contrast("B", "A") is not None


@pytest.mark.parametrize(("mode", "least", "most"), [(Mode.STANDARD, 1.5, 3), (Mode.CAREFUL, 2.5, 5)])
def test_few_prompts_add_no_degrees_of_freedom(mode: Mode, least: float, most: float) -> None:
    """Launches have 3 and 5 at most, half of it where one arm alone is unsteady; more would be too many where launches lie close together by chance."""
    rng = random.Random(29)
    for taste in (0.0, 0.01, 0.1):
        found = [fit_cell(simulated(rng, mode=mode, taste={"B": taste})).contrast("B", "A") for _ in range(30)]
        assert all(one is not None and least - 1e-9 <= one.df <= most + 1e-9 for one in found)


def test_prompts_of_many_cells_are_many_prompts() -> None:
    """Twenty cells of five prompts have some eighty degrees of freedom where prompts alone make a difference doubtful."""
    rng = random.Random(29)
    table = {
        CellKey(suite="s", context=number, output=150): simulated(rng, taste={"B": 0.2}, launch_sd=0.0001, cv=0.0001)
        for number in range(20)
    }
    found = panels(shared_fits(table, "AB", "A"), "A")["B"].contrast("B", "A")
    assert found is not None
    assert 30 < found.df < 81


def test_drift_costs_no_power() -> None:
    assert claims(effect=0.02, drift=DRIFT)[Conclusion.FASTER] >= 0.70 * RUNS


def test_all_of_one_arm_first_costs_certainty() -> None:
    """The same launches as A A A A B B B B: trend and arms can hardly be told apart, and the interval says so."""
    rng = random.Random(3)
    found = simulated(rng, drift=DRIFT)
    aside = {"A": dict(enumerate(found["A"].values())), "B": dict(enumerate(found["B"].values(), 4))}
    turned, apart = fit_cell(found).contrast("B", "A"), fit_cell(aside).contrast("B", "A")
    assert turned is not None
    assert apart is not None
    assert apart.se > 1.5 * turned.se


@pytest.mark.parametrize("mode", [Mode.STANDARD, Mode.CAREFUL])
def test_an_arm_ten_times_as_unsteady_is_no_difference(mode: Mode) -> None:
    """Judged by the spread of both arms together, 7 to 8 % of such runs claimed something."""
    assert told(claims(runs=2000, mode=mode, unsteady={"A": 0.003, "B": 0.03})) <= 0.065


def test_few_prompts_are_a_doubt_of_their_own() -> None:
    """An arm that likes some prompts by 15 % and dislikes others: five of them show no difference of the arms."""
    assert told(claims(runs=400, taste={"B": 0.15})) <= 0.05
    assert claims(effect=0.3, taste={"B": 0.15}, prompts=10)[Conclusion.FASTER] >= 0.95 * RUNS


def test_a_quiet_box_sees_one_per_cent_in_standard_mode() -> None:
    """With the noise that plain decoding has on real boxes: launches 0.07 % and requests 0.15 % apart."""
    quiet = {"mode": Mode.STANDARD, "launch_sd": 0.0007, "cv": 0.0015}
    assert claims(effect=0.01, **quiet)[Conclusion.FASTER] >= 0.95 * RUNS
    assert claims(**quiet)[Conclusion.NO_DIFFERENCE] >= 0.95 * RUNS


def test_the_interval_holds_the_truth() -> None:
    """In 95 of 100 careful runs, give or take what 1,000 runs allow."""
    rng = random.Random(7)
    held = 0
    for _ in range(1000):
        found = fit_cell(simulated(rng, effect=0.02, drift=DRIFT)).contrast("B", "A")
        assert found is not None
        low, high = found.interval()
        held += low <= 0.02 <= high
    assert held >= 940


def test_a_hiccup_costs_little() -> None:
    """One request of forty at a third of its speed moves the result by less than the spread of launches."""
    found = simulated(random.Random(11), effect=0.02)
    whole = fit_cell(found).log_ratio("B", "A")
    second = sorted(found["B"])[1]
    found["B"][second]["3"] /= 3
    assert fit_cell(found).log_ratio("B", "A") == pytest.approx(whole, abs=LAUNCH_SD)


def test_missing_samples_leave_the_pairing_intact() -> None:
    found = simulated(random.Random(13), cv=0.0, launch_sd=0.0, effect=0.01)
    for launch, prompt in ((0, "0"), (1, "2"), (6, "4")):
        found["A" if launch in found["A"] else "B"][launch].pop(prompt)
    assert fit_cell(found).log_ratio("B", "A") == pytest.approx(0.01, abs=1e-9)


def test_prompts_that_are_never_shared_are_compared_by_launch() -> None:
    found = {
        arm: {place: {f"{place}.{prompt}": value for prompt, value in ones.items()} for place, ones in values.items()}
        for arm, values in simulated(random.Random(17), effect=0.5).items()
    }
    assert fit_cell(found).log_ratio("B", "A") == pytest.approx(0.5, abs=0.05)


def test_one_launch_each_tells_no_spread() -> None:
    found = fit_cell(simulated(random.Random(1), mode=Mode.SCREEN, effect=0.031, cv=0.0, launch_sd=0.0))
    assert found.contrast("B", "A") is None
    assert screen_verdict(found.log_ratio("B", "A")).text == "screen only: looks like +3.1 %"


FAR = Contrast(log_ratio=0.0402, se=0.0084, df=5)
NEAR = Contrast(log_ratio=0.0002, se=0.0052, df=5)
WIDE = Contrast(log_ratio=0.01, se=0.02, df=2)


@pytest.mark.parametrize(("contrast", "text"), [
    (FAR, "faster +4.1 % [1.9, 6.4]"), (Contrast(-0.0402, 0.0084, 5), "slower -3.9 % [-6.0, -1.8]"),
    (NEAR, "no difference > 1.9 %: +0.0 % [-1.3, 1.4]"),
    (Contrast(0.0206, 0.0083, 5), "not shown to differ: +2.1 % [-0.1, 4.3]"),
    (WIDE, "inconclusive (MDE 11.3 %): +1.0 % [-7.3, 10.1]"),
    (Contrast(0.01, 2.0, 2), "inconclusive (MDE over 100 %): +1.0 % [-100.0, over 1000]"),
    (Contrast(0.003, 0.0005, 5), "within the box's noise of 0.5 %: +0.3 % [0.2, 0.4]"),
    (Contrast(0.0, 0.0, 5), "no difference > 0.0 %: +0.0 % [0.0, 0.0]"),
    (Contrast(0.02, 0.0, 5), "faster +2.0 % [2.0, 2.0]"),
])  # fmt: skip
def test_words(contrast: Contrast, text: str) -> None:
    assert judge_contrasts([contrast])[0].text == text


def test_claim_and_interval_never_contradict_each_other() -> None:
    """Twenty arms at once: what is claimed leaves out zero, what is not claimed for lack of evidence holds it."""
    rng = random.Random(23)
    contrasts = [Contrast(rng.gauss(0, 0.02), 0.006, 6) for _ in range(20)]
    for one in judge_contrasts(contrasts):
        assert one.low is not None
        assert one.high is not None
        assert (one.claim.told or one.floor is not None) == (one.low > 0 or one.high < 0)


FIGURE = st.floats(0.01, 1e4)
CELL = st.fixed_dictionaries(
    {
        arm: st.dictionaries(
            st.sampled_from(places), st.dictionaries(st.sampled_from("pqr"), FIGURE, min_size=1), min_size=3
        )
        for arm, places in (("A", (0, 3, 5, 6)), ("B", (1, 2, 4, 7)))
    }
)


@given(CELL, st.floats(0.1, 10))
@settings(max_examples=80, deadline=None)
def test_comparisons_mirror_and_scale(cell: dict[str, dict[int, dict[str, float]]], factor: float) -> None:
    """B over A is one over A over B, with the same doubt; a factor on one arm moves the ratio by it, and nothing else."""
    found = fit_cell(cell)
    there, back = found.contrast("B", "A"), found.contrast("A", "B")
    assert there is not None
    assert back is not None
    assert there.log_ratio == pytest.approx(-back.log_ratio, abs=1e-9)
    assert (there.se, there.df) == pytest.approx((back.se, back.df))
    times = {**cell, "B": {at: {one: value * factor for one, value in ones.items()} for at, ones in cell["B"].items()}}
    moved = fit_cell(times).contrast("B", "A")
    assert moved is not None
    shared = {one for ones in cell["A"].values() for one in ones} & {one for ones in cell["B"].values() for one in ones}
    assume(shared)
    assert moved.log_ratio == pytest.approx(there.log_ratio + math.log(factor), abs=1e-6)
    (verdict,) = judge_contrasts([there])
    assert verdict.text
    assert math.isfinite(verdict.delta or 0.0)
