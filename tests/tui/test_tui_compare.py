"""The A/B page: the runs, the cells of one with their verdicts, and what is done with a report."""

from typing import Any

from sparkdash.bench.report.assemble import assemble_report
from sparkdash.bench.report.report import Report
from sparkdash.bench.run import Arm, CellKey
from sparkdash.domain.event import SILENT_S, Measuring, MeasuringChanged, SampleTaken
from sparkdash.errors import AdmissionError
from sparkdash.tui.mirror import View
from sparkdash.tui.screens.compare import AGAIN_S, CellTable, ComparePage, first_steps
from sparkdash.tui.text import plain_text
from sparkdash.tui.widgets.table import TableRow
from tests.bench.conftest import AT, Rehearsal

GRID = {
    CellKey(suite="seeds", context=context, output=output): 60.0 for context in (0, 2048) for output in (32, 150, 400)
}
RUN = "20261121-200000-seeds"
ARMS = [
    Arm(name="plain", profile="coder"),
    Arm(name="eagle", profile="coder/eagle"),
    Arm(name="slow", profile="coder/slow"),
]


def measured(run: str = "20261121-200000-seeds", **given: Any) -> Report:
    """eagle is 4 % faster, slow 10 % slower, and its longest cell is not measured."""
    slow = {key: rate * 0.9 for key, rate in GRID.items() if key.output != 400}
    values: dict[str, Any] = {
        "arms": ARMS,
        "rates": {"plain": GRID, "eagle": {key: rate * 1.04 for key, rate in GRID.items()}, "slow": slow},
        "wobble": 0.001,
        "changes": {"id": run},
    }
    return assemble_report(Rehearsal(**(values | given)).results())


def verdict(on: Any, name: str) -> Any:
    rows: list[TableRow] = on.app.screen.query_one(CellTable)._rows
    return next(row.line[-1] for row in rows if row.copy.startswith(name))


async def test_without_a_run_the_page_says_which_keys_to_press(stage: Any, box: Any) -> None:
    world = box.snapshot(toggle_a=None, toggle_b=None)
    async with stage(world) as on:
        await on.press("4")
        assert [row for row in on.rows if row.startswith(("2 a b", "A plans"))] == [
            "2 a b mark two profiles",
            "A plans a run that tells which of them is better; nothing starts before ⏎",
        ]
    half = View(snapshot=world.model_copy(update={"toggle_a": "x"}), now=0.0, here=0.0)
    assert [plain_text(line) for line in first_steps(half, 90)][:2] == [" A is x.", " 2 b    marks the other"]


async def test_runs_are_asked_for_again_when_the_daemon_is_back(on: Any, box: Any) -> None:
    """A daemon that was away while the page was opened told nothing; what it told before stays on the screen."""
    await on.press("4")
    await on.tell(box.lost)
    assert RUN not in on.text
    on.daemon.reports = {RUN: measured()}
    await on.tell(box.snapshot(seq=900))
    assert RUN in on.text


async def test_a_fact_that_comes_while_the_page_is_made(on: Any) -> None:
    on.app.push_screen(ComparePage())
    on.app._paint()
    await on.settle()
    assert "plans a run" in on.text


async def test_a_run_shows_its_cells_with_verdicts(on: Any) -> None:
    on.daemon.reports = {"20261121-200000-seeds": measured()}
    await on.press("4")
    assert on.daemon.asked == [("report", RUN)], "the newest"
    assert "has gaps SIM plain, eagle, slow" in " ".join(on.text.split())
    assert "╭ eagle against plain (1/2, [ ]) · decode tok/s ─" in on.text
    assert "SIMULATED" in on.text
    assert any(row.startswith("ctx=2K long 66.5 69.2 [") and "faster +4.0 %" in row for row in on.rows)
    assert "eagle gains most over plain: it is 4.0 % faster over all cells. Keep it." in on.text
    assert "all 6 cells: faster +4.0 %" in on.text
    assert verdict(on, "ctx=2K long").style == "good"
    await on.press("right_square_bracket")
    assert verdict(on, "ctx=2K short").style == "bad"
    assert verdict(on, "ctx=2K long").style == "dim"
    assert any(row.startswith("ctx=2K long 66.5 - not measured") for row in on.rows)
    assert "slow lacks 6 of 18 cells, about 4m00s: r, or sparkdash bench" in on.text


def test_with_room_every_figure_has_its_bounds(box: Any) -> None:
    """In a terminal of 120 columns, whose frame takes four; and what is being measured is not to be gone on with."""
    table = CellTable()
    table.report, table.shown_arm = measured(), "slow"
    world = box.snapshot(measuring=under_way().measuring)
    drawn = [plain_text(line) for line in table.draw(View(now=NOW, here=NOW, snapshot=world), 120, 20)]
    (row,) = (line for line in drawn if "ctx=0 short" in line)
    assert row.count("[") == 3, "both figures', and the verdict's"
    assert "slow lacks 6 of 18 cells, about 4m00s: being measured now" in "".join(drawn)


async def test_what_is_not_claimed_has_no_colour(stage: Any, box: Any) -> None:
    """One launch of each arm is a hint, however large. A verdict that is cut stands whole below the cells."""
    why = "the clock under load fell to 820 MHz"
    async with stage(box.snapshot()) as on:
        on.daemon.reports = {"20261121-200000-seeds": measured(mode="screen", voids={("eagle", next(iter(GRID))): why})}
        await on.press("4")
        assert "screen only: looks like" in on.text
        assert verdict(on, "ctx=0 long").style == "dim"
        assert f"| - | void: {why}" in " ".join(on.text.split())


async def test_a_report_is_copied(on: Any) -> None:
    on.daemon.reports = {"20261121-200000-seeds": measured()}
    await on.press("4", "m")
    assert on.app.clipboard.startswith("# eagle and slow against plain: seeds on rehearsal\n\neagle gains most")
    assert "\n\nSIMULATED" in on.app.clipboard
    await on.press("tab", "y")
    assert on.app.clipboard.startswith("ctx=0 short: 64.6 [")


async def test_a_run_that_has_gaps_is_looked_at_again_while_there_is_news(on: Any, box: Any) -> None:
    """Not sooner than AGAIN_S, not without news, and never one that is whole."""
    whole = measured("20261120-200000-seeds", changes={"id": "20261120-200000-seeds", "ended_at": AT})
    on.daemon.reports = {"20261121-200000-seeds": measured(), "20261120-200000-seeds": whole}
    await on.press("4")
    await on.later(AGAIN_S + 1)
    assert len(on.daemon.asked) == 1
    await on.happen(SampleTaken(sample=box.sample()))
    assert on.daemon.asked == [("report", "20261121-200000-seeds")] * 2
    await on.press("j")
    await on.later(AGAIN_S + 1)
    await on.happen(SampleTaken(sample=box.sample()))
    assert on.daemon.asked[2:] == [("report", "20261120-200000-seeds")]


async def test_a_run_that_cannot_be_read_says_why(on: Any) -> None:
    on.daemon.reports = {"20261121-200000-seeds": measured()}
    on.daemon.refuses = AdmissionError("It was written by a newer sparkdash.", code="run_unreadable")
    await on.press("4")
    assert "It was written by a newer sparkdash." in on.text


NOW = 1_760_104_020.0  # as conftest.py has it


def under_way(**changes: Any) -> MeasuringChanged:
    given = {"run": RUN, "doing": "measuring", "arm": "eagle", "cell": "ctx 2K x 150", "launch": 2, "launches": 4}
    return MeasuringChanged(
        measuring=Measuring(**given | {"done": 15, "cells": 36, "share": 0.42, "left_s": 4320.0, "at": NOW} | changes)
    )


async def test_what_is_measured_now_is_seen_and_ended_and_goes_on(on: Any) -> None:
    on.daemon.reports = {RUN: measured()}
    await on.press("4", "x")
    assert "No measurement is running" in on.text
    await on.happen(under_way())
    assert f"╭ measuring {RUN} ─" in on.text
    assert on.daemon.asked == [("report", RUN)], "the cursor is on the run that is measured"
    assert any("42 % 15 of 36 cells about 1h12m left" in row for row in on.rows)
    assert any("launch 2 of 4 · eagle · ctx 2K x 150" in row and "x ends it" in row for row in on.rows)
    assert any(RUN in row and "measuring" in row for row in on.rows)
    await on.press("x")
    assert on.daemon.asked[-1] == ("end measuring",)
    await on.happen(under_way(ends=True))
    assert "is stopping" in on.text
    await on.happen(MeasuringChanged(measuring=None))
    assert "15 of 36 cells" not in on.text
    await on.press("r")
    assert on.daemon.asked[-1] == ("resume", RUN)
    assert f"{RUN} resumes" in on.text
    await on.happen(under_way())
    await on.happen(MeasuringChanged(measuring=None))
    assert on.daemon.asked[-1] == ("report", RUN)  # what it says is another now


async def test_a_run_that_begins_takes_the_cursor_from_an_older_one(on: Any) -> None:
    """Else the cells of the older one would stand below the bar of the new one."""
    new = "20261122-200000-seeds"
    on.daemon.reports = {RUN: measured()}
    await on.press("4", "1")
    on.daemon.reports = {new: measured(new), RUN: measured()}
    await on.happen(under_way(run=new))
    await on.press("4")
    assert on.daemon.asked[-1] == ("report", new)


async def test_the_palette_ends_the_measurement_and_goes_on_with_the_newest_unfinished_run(on: Any) -> None:
    """From every page; of the two commands the one that makes sense now is there."""
    titles = lambda: {command.title: command.callback for command in on.app.get_system_commands(on.app.screen)}  # noqa: E731
    assert "End the measurement" not in titles()
    titles()["Resume a measurement"]()
    await on.pilot.pause()
    assert "No run is unfinished" in on.text
    on.daemon.reports = {RUN: measured()}
    titles()["Resume a measurement"]()
    await on.pilot.pause()
    assert on.daemon.asked[-1] == ("resume", RUN)
    assert f"{RUN} resumes" in on.text
    await on.happen(under_way())
    assert "Resume a measurement" not in titles()
    titles()["End the measurement"]()
    await on.pilot.pause()
    assert on.daemon.asked[-1] == ("end measuring",)
    assert f"{RUN} stops" in on.text


async def test_a_run_that_fell_silent_is_not_shown(on: Any) -> None:
    await on.press("4")
    await on.happen(under_way())
    await on.later(SILENT_S + 1)
    assert "15 of 36 cells" not in on.text
