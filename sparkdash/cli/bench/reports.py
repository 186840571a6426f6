"""`sparkdash bench show|diff`: print the report of a run, or of many, read from their folders.

Owns: which form goes where. Must not know: how anything is measured. No daemon is asked.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.bench import run_list
from sparkdash.cli.bench.report_source import (
    LayoutName,
    MathRun,
    Matrix,
    MatrixSuite,
    MetricName,
    RunName,
    choose_layout,
    local_profiles,
    merge_matrix,
    parse_metric,
    read_report,
)
from sparkdash.cli.output import make_console, print_json, terminal_width
from sparkdash.cli.parameters import AsJson

if TYPE_CHECKING:
    from sparkdash.bench.report.layout import Layout
    from sparkdash.bench.report.report import Report


def show(
    run: Annotated[
        str | None, typer.Argument(help="A run's id, its beginning, or `last`; without it: all runs.")
    ] = None,
    layout: LayoutName = None,
    metric: MetricName = None,
    math: MathRun = None,
    matrix: Matrix = False,
    suite: MatrixSuite = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Only runs of simulated engines.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a run, or many merged: tables and verdicts.

    Each figure has its interval. Missing cells are listed with the command that measures them. --matrix merges the
    runs of one suite, so that a table fills over many nights; each figure names its run and date.

    \b
    Examples:
      sparkdash bench show                   all runs, the newest first
      sparkdash bench show last
      sparkdash bench show last --metric e2e
      sparkdash bench show --matrix --layout qwen3-coder
      sparkdash bench show 20261121-200000-seeds --json
    """
    if run is None and not matrix:
        from sparkdash.bench import run_folder

        known = {place: run_folder.read_run(place) for place in run_list.readable_runs(run_folder.list_runs())}
        found = {place: run for place, run in known.items() if run.simulated or not simulated}
        print_json([*found.values()]) if as_json else run_list.print_runs(map(run_folder.read_results, found))
        return
    report = merge_matrix(run, suite, math, simulated=simulated) if matrix else read_report(run or "last", math)
    if as_json:
        print_json(report)
        return
    _draw(report, choose_layout(report, layout, metric))


def print_finished_run(run: str) -> None:
    """Print the report at the end of a measurement: verdicts last, without the start commands of the engines."""
    report = read_report(run)
    _draw(report, choose_layout(report, None, None), starts=False)


def diff(
    old: RunName,
    new: Annotated[str, typer.Argument(help="The run to compare with it.", metavar="RUN")],
    metric: Annotated[
        str, typer.Option("--metric", help="decode, e2e, prefill, ttft, ttfv, visible or aggregate.")
    ] = "decode",
    as_json: AsJson = False,
) -> None:
    """Set two runs side by side.

    Shows the figures of the profiles that both runs have. Two runs are no experiment: their launches happened at
    different times. So differences are shown, and none is claimed; `sparkdash ab` measures one. Misleading
    comparisons are refused: another suite, thinking flag, temperature or tokenizer, or simulated beside real.

    \b
    Examples:
      sparkdash bench diff 20261120 20261121
      sparkdash bench diff 20261120 last --metric e2e
    """
    from sparkdash.bench.report.run_difference import compare_runs, difference_page

    found = compare_runs(read_report(old), read_report(new), parse_metric(metric))
    if as_json:
        print_json(found)
    else:
        from sparkdash.bench.report.formats.terminal import print_page as draw

        draw(difference_page(found), make_console(sys.stdout, terminal_width()))
    if found.refused:
        raise typer.Exit(1)


def _draw(report: Report, layout: Layout, *, starts: bool = True) -> None:
    from sparkdash.bench.report.formats.terminal import print_page as draw
    from sparkdash.bench.report.page import report_page

    draw(
        report_page(report, layout, local_profiles(report), bounds=True, starts=starts),
        make_console(sys.stdout, terminal_width()),
    )
