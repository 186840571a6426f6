"""Energy per 1,000 output tokens: power under load times the requests' time, with an interval and without a claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from sparkdash.bench.judge.energy import CellEnergy, cell_energies
from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.formats.markdown import render_markdown
from sparkdash.bench.report.merged_runs import merge_runs
from sparkdash.bench.report.page import report_page
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, CellKey, Mode

Rehearse = Callable[..., Results]
CELL = CellKey(suite="seeds", context=0, output=400)
CROWD = CellKey(suite="seeds", context=0, output=256, concurrency=4)
ARMS = [Arm(name="plain", profile="coder"), Arm(name="eagle", profile="coder/eagle")]
RATES = {"plain": {CELL: 50.0}, "eagle": {CELL: 100.0}}


def powered(results: Results, watts: Mapping[str, float], sensors: Mapping[str, str] | None = None) -> Results:
    """The same results with a reading of the power in each cell of these arms."""
    read = [
        one.replace(
            power_w=watts.get(one.arm), power_sensor=(sensors or {}).get(one.arm), clock_mhz=2400, temperature_c=61.0
        )
        for one in results.cells
    ]
    return results.replace(cells=tuple(read))


def energy(results: Results, arm: str) -> CellEnergy:
    (found,) = (one for one in cell_energies(results) if one.arm == arm)
    return found


def test_the_energy_of_a_thousand_tokens_is_power_times_time(rehearse: Rehearse) -> None:
    """36 W at 50 tok/s for 1,000 tokens are 720 J, or 0.2 Wh; 60 W at twice the speed are a sixth less."""
    found = powered(rehearse(arms=ARMS, rates=RATES, wobble=0.001), {"plain": 36.0, "eagle": 60.0})
    plain, eagle = energy(found, "plain"), energy(found, "eagle")
    assert plain.wh == pytest.approx(0.2, rel=0.002)
    assert plain.tokens_per_wh == pytest.approx(5000, rel=0.002)
    assert plain.change is None
    assert eagle.change is not None
    assert eagle.change.delta == pytest.approx(-1 / 6, abs=0.002)
    assert eagle.change.low is not None
    assert eagle.change.high is not None
    assert eagle.change.low <= eagle.change.delta <= eagle.change.high


def test_concurrent_requests_share_the_power(rehearse: Rehearse) -> None:
    """Four at once at 25 tok/s each give 100 tok/s for the same watts."""
    found = powered(rehearse(arms=ARMS[:1], rates={"plain": {CROWD: 25.0}}), {"plain": 36.0})
    assert energy(found, "plain").wh == pytest.approx(0.1, rel=0.001)


def test_power_by_another_sensor_is_not_compared(rehearse: Rehearse) -> None:
    """The GPU alone and the whole box are different quantities."""
    found = powered(rehearse(arms=ARMS, rates=RATES), {"plain": 36.0, "eagle": 60.0}, {"eagle": "whole box"})
    assert energy(found, "eagle").change is None
    assert "Sensor: GPU only, whole box." in told(found)


def told(results: Results) -> str:
    return render_markdown(report_page(assemble_report(results)))


def test_the_table_has_clock_and_temperature_and_claims_nothing(rehearse: Rehearse) -> None:
    """Its words say what the figure is; without readings there is no table."""
    plain = rehearse(arms=ARMS, rates=RATES, wobble=0.001)
    table = told(powered(plain, {"plain": 36.0, "eagle": 60.0})).split("## Energy")[1].split("\n## ")[0]
    assert "Sensor: GPU only." in table
    assert "No difference is claimed here." in table
    row = next(line for line in table.split("### eagle")[1].splitlines() if line.startswith("| ctx=0"))
    assert "-16.7% [" in row
    assert "| 60.0" in row
    assert "| 2400" in row
    assert "| 61" in row
    assert "faster" not in table
    assert "slower" not in table
    assert "## Energy" not in told(plain)


def test_one_launch_of_each_arm_gives_a_change_in_brackets(rehearse: Rehearse) -> None:
    found = powered(rehearse(arms=ARMS, rates=RATES, mode=Mode.SCREEN), {"plain": 36.0, "eagle": 60.0})
    assert "(-16.7%)" in told(found)


def test_merged_evenings_show_energy_without_a_change(rehearse: Rehearse) -> None:
    """Two evenings are no experiment."""
    nights = [
        powered(rehearse(arms=[arm], rates=RATES, changes={"id": f"2026112{n}-200000-seeds"}), {arm.name: 36.0})
        for n, arm in enumerate(ARMS)
    ]
    energies = merge_runs(nights[::-1]).energies
    assert {one.arm for one in energies} == {"plain", "eagle"}
    assert all(one.change is None for one in energies)
