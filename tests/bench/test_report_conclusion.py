"""The first and the last line of a report: what was found, and what to keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparkdash.bench.judge.metrics import BenchMetric
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats import render_markdown
from sparkdash.bench.report.page import conclusion, report_page, speed_text
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, Mode
from tests.bench.conftest import key

A, B, C = (Arm(name=name, profile=name) for name in "ABC")
CELLS = [key(0, 150), key(512, 150), key(2048, 150)]


def rates(*figures: float) -> dict[Any, float]:
    return dict(zip(CELLS, figures, strict=False))


@pytest.mark.parametrize(("mine", "given", "sentence"), [
    ((100.0, 100.0, 100.0), {}, "B is twice as fast in all 3 cells. Keep it."),
    ((25.0, 25.0), {}, "B is half as fast in all 3 cells. Keep A."),
    ((56.5, 56.5, 56.5), {}, "B is 13 % faster in all 3 cells. Keep it."),
    ((56.5, 50.0, 50.0), {}, "B is faster in 1 of 3 cells and slower in none. Keep it."),
    ((56.5, 40.0, 50.0), {}, "B is faster in 1 and slower in 1 of 3 cells. Choose by the cells that you use."),
    ((50.0, 50.0, 50.0), {}, "B is as fast as A in all 3 cells, as far as this can tell. Keep either."),
    ((56.5, 56.5, 56.5), {"mode": Mode.SCREEN}, "B looks 13 % faster, which one launch of each cannot show. Measure with `--mode standard`."),
    ((56.5, 56.5, 56.5), {"reps": 2}, "B looks 13 % faster, which 2 common prompts cannot show. Take a larger suite, such as `--suite seeds`."),
    ((56.5, 56.5, 56.5), {"maths": {"A": 48, "B": 3}}, "B is 13 % faster in all 3 cells, but fewer of its answers are right. Keep A."),
    ((56.5, 56.5, 56.5), {"provenance": {"A": {"thinking": True}, "B": {"thinking": False}}}, "B and A cannot be compared. The thinking flag differs: off in B, on in A."),
    ((), {}, "No cell of both B and A was measured yet, so nothing can be said."),
])  # fmt: skip
def test_a_pair_in_one_sentence(
    rehearse: Callable[..., Results], mine: tuple[float, ...], given: dict[str, Any], sentence: str
) -> None:
    base = rates(*(50.0 for _ in mine or CELLS))
    found = assemble_report(rehearse(arms=[A, B], rates={"A": base, "B": rates(*mine)}, wobble=0.001, **given))
    wanted = sentence.replace("all 3 cells", {2: "both cells"}.get(len(mine), "all 3 cells"))
    assert conclusion(found, BenchMetric.DECODE) == wanted
    page = render_markdown(report_page(found)).strip().splitlines()
    assert page[0] == "# B against A: seeds on rehearsal"
    assert (page[2], page[-1]) == (wanted, wanted)


def test_of_several_arms_the_one_that_gains_most(rehearse: Callable[..., Results]) -> None:
    told = {"A": rates(50.0, 50.0), "B": rates(60.0, 60.0), "C": rates(55.0, 55.0)}
    found = assemble_report(rehearse(arms=[A, B, C], rates=told, wobble=0.001))
    assert conclusion(found, BenchMetric.DECODE) == "B gains most over A: it is 20 % faster over all cells. Keep it."
    alike = assemble_report(rehearse(arms=[A, B, C], rates={name: rates(50.0, 50.0) for name in "ABC"}, wobble=0.001))
    assert (
        conclusion(alike, BenchMetric.DECODE)
        == "None of the 2 others is shown to be faster than A over all cells. Keep A."
    )


def test_cells_that_were_not_measured_are_not_counted(rehearse: Callable[..., Results]) -> None:
    told = {"A": rates(50.0, 50.0, 50.0), "B": rates(100.0, 100.0)}
    found = assemble_report(rehearse(arms=[A, B], rates=told, wobble=0.001))
    assert conclusion(found, BenchMetric.DECODE) == "B is twice as fast in both judged cells. Keep it."


def test_cells_of_which_some_are_faster_are_named_as_those_that_were_judged(rehearse: Callable[..., Results]) -> None:
    """The mean over all cells counts those too that allow no claim, and stands beside this sentence."""
    told = {"A": rates(50.0, 50.0, 50.0), "B": rates(100.0, 50.0)}
    found = assemble_report(rehearse(arms=[A, B], rates=told, wobble=0.001))
    assert conclusion(found, BenchMetric.DECODE) == "B is faster in 1 of 2 judged cells and slower in none. Keep it."


def test_one_arm_has_nothing_to_conclude(rehearse: Callable[..., Results]) -> None:
    assert conclusion(assemble_report(rehearse(arms=[A], rates={"A": rates(50.0)})), BenchMetric.DECODE) is None


@pytest.mark.parametrize(("ratio", "text"), [
    (2.04, "twice as fast"), (2.6, "2.6 times as fast"), (6.0, "6.0 times as fast"), (1.041, "4.1 % faster"),
    (0.5, "half as fast"), (0.93, "7.0 % slower"),
])  # fmt: skip
def test_speed_in_words(ratio: float, text: str) -> None:
    assert speed_text(ratio) == text


def test_a_time_that_is_longer_has_the_share_of_its_cell() -> None:
    """Starts of 24.3 and 45.7 s: "slower +85.1 %" in the cell, and not 46 % in the sentence above it."""
    assert speed_text(1 / 1.851, 0.851) == "85 % slower"
