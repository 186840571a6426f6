"""A sweep of the GPU's clock: arms of one build, and a clock by tokens per Wh at a stated loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sparkdash.bench.judge.clock_choice import ClockVerdict
from sparkdash.bench.measure.voids import BoxReading, cell_void_reason
from sparkdash.bench.plan import clock_sweep, sweep
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats.markdown import render_markdown
from sparkdash.bench.report.page import report_page
from sparkdash.bench.report.report import Report
from sparkdash.bench.results import Results
from sparkdash.bench.run import CellKey, Mode
from sparkdash.errors import AdmissionError

Rehearse = Callable[..., Results]
CELLS = [CellKey(suite="seeds", context=context, output=400) for context in (0, 2048)]
VALUES = "gpu-clock=1400,1800,2200,free"


def measured(rehearse: Rehearse, rates: Mapping[str, float], watts: Mapping[str, float], **changes: Any) -> Report:
    """A sweep whose arms decode at these rates, on this power."""
    arms = clock_sweep.clock_arms(sweep.parse_sweep(VALUES), "coder")
    by_name = {arm.name: dict.fromkeys(CELLS, rates[arm.parameters["gpu-clock"]]) for arm in arms}
    mode = changes.pop("mode", Mode.STANDARD)
    found = rehearse(arms=arms, rates=by_name, reps=3, wobble=0.0005, mode=mode, changes=changes)
    drawn = {arm.name: watts[arm.parameters["gpu-clock"]] for arm in arms}
    cells = tuple(one.replace(power_w=drawn[one.arm], clock_mhz=1390.0) for one in found.cells)
    return assemble_report(found.replace(cells=cells))


RATES = {"free": 50.0, "2200": 49.5, "1800": 48.5, "1400": 44.0}
WATTS = {"free": 80.0, "2200": 65.0, "1800": 50.0, "1400": 35.0}


def verdicts(report: Report) -> dict[int | None, ClockVerdict]:
    assert report.clock is not None
    return {one.cap_mhz: one.verdict for one in report.clock.figures}


def test_the_arms_share_one_profile_and_the_highest_clock_is_the_baseline() -> None:
    """No profile is written: nothing but the clock differs."""
    arms = clock_sweep.clock_arms(sweep.parse_sweep(VALUES), "coder")
    assert [clock_sweep.cap_mhz(arm) for arm in arms] == [None, 2200, 1800, 1400]
    assert {arm.profile for arm in arms} == {"coder"}
    assert sweep.sweep_of(arms) is None
    assert clock_sweep.clock_words(arms) == "coder --sweep gpu-clock=free,2200,1800,1400"


@pytest.mark.parametrize("text", ["gpu-clock=1400,fast", "gpu-clock=0,1400", "gpu-clock=1400,-5"])
def test_a_value_that_is_no_clock_is_refused(text: str) -> None:
    """With an example."""
    with pytest.raises(AdmissionError, match="no clock in MHz"):
        clock_sweep.clock_arms(sweep.parse_sweep(text), "coder")


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("2.5 %", 0.025), ("0", 0.0)])
def test_a_loss_is_given_in_per_cent(text: str, share: float) -> None:
    """With or without the sign."""
    assert clock_sweep.loss_of(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["100%", "-1", "many"])
def test_a_loss_that_is_no_share_is_refused(text: str) -> None:
    """All of it cannot be lost."""
    with pytest.raises(ValueError, match=r".*"):
        clock_sweep.loss_of(text)


def test_the_clock_with_the_most_tokens_per_wh_within_the_loss_is_taken(rehearse: Rehearse) -> None:
    """1400 MHz saves more, and loses 12 %; 2200 MHz loses less, and saves less."""
    report = measured(rehearse, RATES, WATTS)
    assert report.clock is not None
    assert report.clock.taken == "gpu-clock=1800"
    assert verdicts(report) == {
        None: ClockVerdict.BASELINE, 2200: ClockVerdict.SAVES_LESS, 1800: ClockVerdict.TAKEN, 1400: ClockVerdict.LOSES,
    }  # fmt: skip
    (taken,) = (one for one in report.clock.figures if one.arm == report.clock.taken)
    assert taken.decode is not None
    assert taken.decode.delta == pytest.approx(-0.03, abs=0.002)
    assert taken.decode.low is not None
    assert taken.decode.low < taken.decode.delta
    text = render_markdown(report_page(report))
    assert "Take gpu-clock=1800" in text
    assert "stated loss: at most 5%" in text
    assert "SIMULATED" in text


def test_a_smaller_stated_loss_takes_a_higher_clock(rehearse: Rehearse) -> None:
    """And one that no clock keeps leaves the baseline."""
    two, none = (measured(rehearse, RATES, WATTS, most_loss=share).clock for share in (0.02, 0.001))
    assert two is not None
    assert none is not None
    assert (two.taken, none.taken) == ("gpu-clock=2200", "gpu-clock=free")


def test_tokens_per_wh_are_of_the_cells_whose_power_every_clock_has(rehearse: Rehearse) -> None:
    """A long prompt costs more energy: a clock without the reading of one cell would seem to save."""
    arms = clock_sweep.clock_arms(sweep.parse_sweep("gpu-clock=1400,free"), "coder")
    slow_cell = {CELLS[0]: 50.0, CELLS[1]: 10.0}
    found = rehearse(arms=arms, rates={arm.name: slow_cell for arm in arms}, reps=3, wobble=0.002)
    blind = ("gpu-clock=free", CELLS[1])
    cells = tuple(one.replace(power_w=None if (one.arm, one.key) == blind else 36.0) for one in found.cells)
    choice = assemble_report(found.replace(cells=cells)).clock
    assert choice is not None
    assert [one.tokens_per_wh for one in choice.figures] == pytest.approx([5000, 5000], rel=0.01)


def test_a_clock_that_saves_nothing_is_not_taken(rehearse: Rehearse) -> None:
    """Its power falls no more than its rate."""
    report = measured(rehearse, RATES, dict.fromkeys(WATTS, 80.0))
    assert report.clock is not None
    assert report.clock.taken == "gpu-clock=free"
    assert verdicts(report)[2200] is ClockVerdict.SAVES_NOTHING


def test_screen_mode_recommends_no_clock(rehearse: Rehearse) -> None:
    """One launch each gives no interval."""
    report = measured(rehearse, RATES, WATTS, mode=Mode.SCREEN)
    assert report.clock is not None
    assert report.clock.taken is None
    assert "No clock is recommended" in render_markdown(report_page(report))


def test_a_sweep_of_the_clock_recommends_nothing_by_decode_rate(rehearse: Rehearse) -> None:
    """The fastest clock is the highest one, which nobody asked."""
    assert measured(rehearse, RATES, WATTS).advice == ()


def test_a_cell_whose_cap_was_lifted_does_not_count() -> None:
    """The daemon was started anew, and freed the clock."""
    assert cell_void_reason([BoxReading(cap_lost=True)], None) == "the cap of the GPU's clock was lifted"
