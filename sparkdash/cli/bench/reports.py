"""`sparkdash bench show|export|watch`: reports of runs, read from their folders. No daemon is asked."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output import make_console, print_json, print_note, print_table, print_text, terminal_width
from sparkdash.cli.parameters import AsJson, complete_profile
from sparkdash.errors import AdmissionError, writing

if TYPE_CHECKING:
    from sparkdash.bench.judge.metrics import BenchMetric
    from sparkdash.bench.report.layout import Layout
    from sparkdash.bench.report.page import LocalProfiles
    from sparkdash.bench.report.report import Report
    from sparkdash.bench.results import Results
    from sparkdash.bench.run import Run


def print_runs(found: Iterable[Results]) -> None:
    from sparkdash.cli.bench.progress import uncounted_text

    listed = list(found)
    rows = [_row(one) for one in listed]
    if not rows:
        print_text("No run yet. `sparkdash bench PROFILE --suite smoke` takes about a minute.")
        return
    print_table(("RUN", "MODE", "CELLS", "VOID", "ARMS"), rows, "<<>><")
    for one in listed:
        if said := uncounted_text(one):
            print_note(f"{one.run.id}: {said}.")


def readable_runs(places: Iterable[Path]) -> Iterator[Path]:
    """Yield the runs that this version can read; print a note for each other run."""
    from sparkdash.bench import run_folder

    for place in places:
        try:
            run_folder.read_run(place)
        except AdmissionError as error:
            print_note(error.text())
        else:
            yield place


def _row(found: Results) -> tuple[str, ...]:
    run = found.run
    whole = sum(len(run.planned(index)) for index in range(len(run.order)))
    arms = ("SIM " if run.simulated else "") + ", ".join(arm.name for arm in run.arms)
    void = sum(one.void is not None for one in found.samples)
    return run.id, run.mode, f"{whole - len(found.gaps())}/{whole}", str(void), arms


def complete_suite(incomplete: str) -> list[str]:
    from sparkdash.bench.plan import suites

    return sorted(name for name in suites.suite_files() if name.startswith(incomplete))


def complete_run(incomplete: str) -> list[str]:
    from sparkdash.bench import run_folder

    return [place.name for place in run_folder.list_runs() if place.name.startswith(incomplete)]


MATH = "math"
LayoutName = Annotated[
    str | None,
    typer.Option(
        "--layout", help="lab, recipes, steps, qwen3-coder, or a YAML file; without RUN, of all runs of its suites."
    ),
]
MetricName = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="Figure in the tables: decode, e2e (with prefill, as in published tables), prefill, ttft, "
        "ttfv, itl_p99, visible.",
    ),
]
Matrix = Annotated[
    bool, typer.Option("--matrix", help="Merge all runs of a suite: of each cell the newest that counts.")
]
MatrixSuite = Annotated[
    str | None,
    typer.Option(
        "--suite",
        "-s",
        metavar="SUITE",
        help="For --matrix: the suite; default: the newest run's.",
        autocompletion=complete_suite,
    ),
]


def read_report(run: str) -> Report:
    """Assemble the report of a run. Raises AdmissionError."""
    from sparkdash.bench import run_folder
    from sparkdash.bench.report.assemble import assemble_report

    results = run_folder.read_results(run_folder.find_run(run))
    found = assemble_report(results)
    if found.filling and not _can_resume(results):
        found = found.replace(filling=tuple(one.replace(command="") for one in found.filling))
    return found


def _can_resume(results: Results) -> bool:
    """Whether `bench resume` would take the run, as far as files tell; a demo's twins are in none."""
    from sparkdash.bench.plan.suites import can_resume
    from sparkdash.cli.local import configured_catalog
    from sparkdash.domain.profile import EngineKind

    known = configured_catalog().profiles.values()
    alike = [one for one in known if (one.engine is EngineKind.SIM) is results.run.simulated]
    return can_resume(results, {one.name: [launch.fingerprint for launch in one.launches] for one in alike})


def merge_matrix(suites: Sequence[str | None], *, named: Collection[str] = (), simulated: bool = False) -> Report:
    """Merge the runs of each suite (None: the newest run's), and the newest right answers of the suite `math`."""
    from sparkdash.bench import run_folder
    from sparkdash.bench.report.assemble import add_math_scores
    from sparkdash.bench.report.merged_runs import merge_runs, select_runs

    places = {place.name: place for place in readable_runs(run_folder.list_runs())}
    known = [run_folder.read_run(place) for place in places.values()]

    def merged(runs: Sequence[Run]) -> Report:
        found = [run_folder.read_results(places[one.id]) for one in runs]
        closed = [one.run.id for one in found if one.gaps() and not _can_resume(one)]
        return merge_runs(found, closed, named)

    chosen = _chosen_runs(known, suites, simulated=True if simulated else None)
    report = merged(chosen)
    asked = select_runs(known, MATH, simulated=chosen[0].simulated) if MATH not in suites else []
    return add_math_scores(report, merged(asked)) if asked else report


def _chosen_runs(known: Sequence[Run], suites: Sequence[str | None], *, simulated: bool | None) -> list[Run]:
    """Return the runs of one matrix, newest first; tell how many of another version of a suite are left out."""
    from sparkdash.bench.report.merged_runs import select_runs

    runs = [one for one in known if one.suite in suites or (None in suites and one.suite != MATH)]
    if not runs:
        wanted = " or ".join(suite for suite in suites if suite) or "any suite"
        raise AdmissionError(
            f"There is no run of {wanted} to merge.", code="run_not_found", status=404,
            hint="`sparkdash bench show` lists them.",
        )  # fmt: skip
    simulated = all(one.simulated for one in runs) if simulated is None else simulated
    chosen = [one for suite in suites for one in select_runs(runs, suite, simulated=simulated)]
    hashes = {one.suite: one.suite_hash for one in chosen}
    if others := sum(hashes.get(one.suite, one.suite_hash) != one.suite_hash for one in runs):
        print_note(f"{others} runs of another version of the suite {' or '.join(hashes)} are left out.")
    return sorted(chosen, key=lambda one: one.created_at, reverse=True)


def _asked_report(
    run: str | None, layout: Layout | None, *, matrix: bool, suite: str | None, simulated: bool
) -> Report:
    if run is not None and matrix:
        raise typer.BadParameter("--matrix reads all runs of a suite; give --suite instead of a RUN", param_hint="RUN")
    if run is not None:
        return read_report(run)
    suites: Sequence[str | None] = [suite] if suite or not layout else layout.suites or [None]
    return merge_matrix(suites, named=layout.named if layout else (), simulated=simulated)


def choose_layout(report: Report, layout: Layout | None, metric: str | None) -> Layout:
    from sparkdash.bench.report.layout import derive_layout

    layout = layout or derive_layout(report)
    return layout if metric is None else layout.replace(metric=parse_metric(metric).value)


def _named_layout(name: str | None) -> Layout | None:
    from sparkdash.bench.report.layout import load_layout

    return None if name is None else load_layout(name)


def parse_metric(name: str) -> BenchMetric:
    from sparkdash.bench.judge.metrics import BenchMetric

    try:
        return BenchMetric(name)
    except ValueError:
        raise AdmissionError(
            f"The figure {name} does not exist.",
            code="metric_not_found",
            hint=f"Choose one of {', '.join(BenchMetric)}.",
        ) from None


def local_profiles() -> LocalProfiles:
    from sparkdash.bench.report.page import LocalProfiles
    from sparkdash.cli.local import configured_catalog
    from sparkdash.nodes.link_bench import channel_rates

    profiles = configured_catalog().profiles.values()
    return LocalProfiles(
        cannot_run={one.name: one.cannot_run for one in profiles if one.cannot_run},
        published={one.name: one.published for one in profiles if one.published},
        links=channel_rates(),
    )


def watch(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="A profile's name.", autocompletion=complete_profile)
    ],
    metric: Annotated[
        str, typer.Option("--metric", help="decode, e2e, prefill, ttft, ttfv, itl_p99, visible, aggregate or load.")
    ] = "decode",
    as_json: AsJson = False,
) -> None:
    """Show whether PROFILE got slower after a pull or an update.

    Shows its figures by image digest, model revision, driver and kernel, of all recorded runs. Says what changed last,
    whether the newest build looks slower, and the image digest to go back to. Evenings are no experiment: nothing is
    claimed. The exit status is 1 when it looks slower.

    \b
    Examples:
      sparkdash bench watch gpt-oss-120b
      sparkdash bench watch gpt-oss-120b --metric prefill
      sparkdash bench watch gpt-oss-120b --json
    """
    from sparkdash.bench.watch import Outlook, watch_page, watch_profile

    wanted = parse_metric(metric)
    found = watch_profile(_runs_of(profile), profile, wanted)
    if not found.periods:
        raise AdmissionError(
            f"{profile} has no {wanted.value} figure in any recorded run.", code="run_not_found", status=404,
            hint=f"`sparkdash bench {profile} --suite smoke` measures it; `sparkdash bench show` lists the runs.",
        )  # fmt: skip
    if as_json:
        print_json(found)
    else:
        from sparkdash.bench.report.formats import print_page as draw

        draw(watch_page(found), make_console(sys.stdout, terminal_width()))
    if found.change is not None and found.change.outlook is Outlook.SLOWER:
        raise typer.Exit(1)


def _runs_of(profile: str) -> Iterator[Results]:
    from sparkdash.bench import run_folder

    for place in readable_runs(run_folder.list_runs()):
        if any(arm.profile == profile for arm in run_folder.read_run(place).arms):
            yield run_folder.read_results(place)


def export(
    run: Annotated[
        str | None,
        typer.Argument(
            help="A run's id, its beginning, or `last`.", metavar="RUN", show_default=False, autocompletion=complete_run
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Output file; default: stdout.")] = None,
    layout: LayoutName = None,
    metric: MetricName = None,
    matrix: Matrix = False,
    suite: MatrixSuite = None,
) -> None:
    """Write a run, or many merged, as Markdown. `bench show --json` has the same as JSON.

    \b
    Examples:
      sparkdash bench export last -o report.md
      sparkdash bench export --layout recipes -o recipes.md
    """
    from sparkdash.bench.report.formats import render_markdown
    from sparkdash.bench.report.page import report_page

    chosen = _named_layout(layout)
    if run is None and not matrix and chosen is None:
        raise typer.BadParameter("give a RUN, a --layout, or --matrix for all runs of a suite", param_hint="RUN")
    report = _asked_report(run, chosen, matrix=matrix, suite=suite, simulated=False)
    text = render_markdown(report_page(report, choose_layout(report, chosen, metric), local_profiles()))
    if output is None:
        return print_text(text, nl=False)
    with writing(output, "report_unwritable"):
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    return print_note(f"Wrote {output}.")


def show(
    run: Annotated[
        str | None,
        typer.Argument(
            help="A run's id, its beginning, or `last`; without it: all runs.",
            metavar="RUN",
            autocompletion=complete_run,
        ),
    ] = None,
    layout: LayoutName = None,
    metric: MetricName = None,
    matrix: Matrix = False,
    suite: MatrixSuite = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="Only runs of simulated engines.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a run, or many merged: tables and verdicts.

    Each figure has its interval. Missing cells are listed with the command that measures them. --matrix merges the
    runs of one suite, so that a table fills over many nights; each figure names its run and date. So does a layout
    without RUN, for its own suites.

    \b
    Examples:
      sparkdash bench show                   all runs, the newest first
      sparkdash bench show last
      sparkdash bench show last --metric e2e
      sparkdash bench show --layout qwen3-coder
      sparkdash bench show 20261121-200000-seeds --json
    """
    chosen = _named_layout(layout)
    if run is None and not matrix and chosen is None:
        from sparkdash.bench import run_folder

        known = {place: run_folder.read_run(place) for place in readable_runs(run_folder.list_runs())}
        found = {place: run for place, run in known.items() if run.simulated or not simulated}
        return print_json([*found.values()]) if as_json else print_runs(map(run_folder.read_results, found))
    report = _asked_report(run, chosen, matrix=matrix, suite=suite, simulated=simulated)
    if as_json:
        return print_json(report)
    return _draw(report, choose_layout(report, chosen, metric))


def print_finished_run(run: str) -> None:
    """Print the report at the end of a measurement: verdicts last, without the start commands of the engines."""
    report = read_report(run)
    _draw(report, choose_layout(report, None, None), starts=False)


def _draw(report: Report, layout: Layout, *, starts: bool = True) -> None:
    from sparkdash.bench.report.formats import print_page as draw
    from sparkdash.bench.report.page import report_page

    draw(
        report_page(report, layout, local_profiles(), bounds=True, starts=starts),
        make_console(sys.stdout, terminal_width()),
    )
