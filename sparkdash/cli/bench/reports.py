"""`sparkdash bench show|diff|export`: print or write the report of a run, read from its folder.

Owns: which form goes where. Must not know: how anything is measured. No daemon is asked.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.bench import run_list
from sparkdash.cli.output.screen import make_console, print_json, print_note, print_text, terminal_width
from sparkdash.cli.parameters import AsJson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkdash.bench.judge.metrics import BenchMetric
    from sparkdash.bench.report.layout import Layout
    from sparkdash.bench.report.page import LocalProfiles
    from sparkdash.bench.report.report import Report
    from sparkdash.domain.profile import Profile
    from sparkdash.domain.weights import WeightFacts

RunName = Annotated[str, typer.Argument(help="A run's id, its beginning, or `last`.", metavar="RUN")]
LayoutName = Annotated[
    str | None,
    typer.Option("--layout", help="A layout's name (qwen3-coder) or YAML file; default: derived from the run."),
]
MetricName = Annotated[
    str | None,
    typer.Option(
        "--metric",
        help="Figure in the tables: decode, e2e (with prefill, as in published tables), prefill, ttft, ttfv, visible.",
    ),
]


MathRun = Annotated[
    str | None,
    typer.Option("--math", metavar="RUN", help="Add the right answers of this run of the suite math to the tables."),
]


class ReportFormat(StrEnum):
    """Formats that `bench export` can write."""

    MD = "md"
    CSV = "csv"
    JSON = "json"
    HTML = "html"
    LOCALMAXXING = "localmaxxing"


def show(
    run: Annotated[
        str | None, typer.Argument(help="A run's id, its beginning, or `last`; without it: all runs.")
    ] = None,
    layout: LayoutName = None,
    metric: MetricName = None,
    math: MathRun = None,
    simulated: Annotated[bool, typer.Option("--simulated", help="List only runs of simulated engines.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a run: its tables, and what can be claimed.

    Each figure has its interval. Missing cells are listed with the command that measures them.

    \b
    Examples:
      sparkdash bench show                   all runs, the newest first
      sparkdash bench show last
      sparkdash bench show last --metric e2e
      sparkdash bench show 20261121-200000-seeds --json
    """
    if run is None:
        from sparkdash.bench import run_folder

        known = {place: run_folder.read_run(place) for place in run_list.readable_runs(run_folder.list_runs())}
        found = {place: run for place, run in known.items() if run.simulated or not simulated}
        print_json([*found.values()]) if as_json else run_list.print_runs(map(run_folder.read_results, found))
        return
    report = _report(run, math)
    if as_json:
        print_json(report)
        return
    _draw(report, _layout(report, layout, metric))


def print_finished_run(run: str) -> None:
    """Print the report at the end of a measurement: verdicts last, without the start commands of the engines."""
    report = _report(run)
    _draw(report, _layout(report, None, None), starts=False)


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

    found = compare_runs(_report(old), _report(new), _metric(metric))
    if as_json:
        print_json(found)
    else:
        from sparkdash.bench.report.formats.terminal import print_page as draw

        draw(difference_page(found), make_console(sys.stdout, terminal_width()))
    if found.refused:
        raise typer.Exit(1)


def export(
    run: RunName,
    form: Annotated[ReportFormat, typer.Option("--format", "-f", help="Output format.")] = ReportFormat.MD,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Output file; default: stdout.")] = None,
    layout: LayoutName = None,
    metric: MetricName = None,
    math: MathRun = None,
    arm: Annotated[str | None, typer.Option("--arm", help="For localmaxxing: the arm; default: the baseline.")] = None,
) -> None:
    """Write a run as Markdown, CSV, JSON or HTML.

    CSV has llama-benchy's columns; `localmaxxing` writes a submission for that site.

    \b
    Examples:
      sparkdash bench export last -o report.md
      sparkdash bench export 20261121 --layout qwen3-coder --math last -o m.md
      sparkdash bench export last --format html -o report.html
      sparkdash bench export last --format csv | column -ts,
    """
    text = _rendered(run, form, layout, metric, math, arm)
    if output is None:
        print_text(text, nl=False)
        return
    from sparkdash.errors import HostError

    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise HostError(f"{output} cannot be written: {error.strerror}.", code="report_unwritable") from error
    print_note(f"Wrote {output}.")


def _rendered(
    run: str, form: ReportFormat, layout: str | None, metric: str | None, math: str | None, arm: str | None
) -> str:
    from sparkdash.bench import run_folder
    from sparkdash.bench.report.formats import llama_benchy, localmaxxing, markdown
    from sparkdash.bench.report.page import report_charts, report_page

    if form is ReportFormat.CSV:
        return llama_benchy.render_csv(run_folder.read_results(run_folder.find_run(run)))
    report = _report(run, math)
    if form is ReportFormat.JSON:
        return report.model_dump_json(indent=2) + "\n"
    if form is ReportFormat.LOCALMAXXING:
        from pydantic_core import to_json

        payload = localmaxxing.build_submission(report, arm)
        if missing := localmaxxing.missing_fields(payload):
            print_note(f"Fill in before sending: {', '.join(missing)}.")
        return to_json(payload, indent=2).decode() + "\n"
    shelf, chosen = _shelf(report), _layout(report, layout, metric)
    if form is ReportFormat.HTML:
        from sparkdash.bench.report.formats import html

        return html.render_html(
            report_page(report, chosen, shelf), report_charts(report, chosen, shelf), html.plotly_script()
        )
    return markdown.render_markdown(report_page(report, chosen, shelf))


def _draw(report: Report, layout: Layout, *, starts: bool = True) -> None:
    from sparkdash.bench.report.formats.terminal import print_page as draw
    from sparkdash.bench.report.page import report_page

    draw(
        report_page(report, layout, _shelf(report), bounds=True, starts=starts),
        make_console(sys.stdout, terminal_width()),
    )


def _report(run: str, math: str | None = None) -> Report:
    from sparkdash.bench import run_folder
    from sparkdash.bench.report.assemble import add_math_scores, assemble_report

    found = assemble_report(run_folder.read_results(run_folder.find_run(run)))
    return found if math is None else add_math_scores(found, _report(math))


def _layout(report: Report, name: str | None, metric: str | None) -> Layout:
    from sparkdash.bench.report.layout import derive_layout
    from sparkdash.bench.report.layouts import load_layout

    layout = derive_layout(report) if name is None else load_layout(name)
    return layout if metric is None else layout.replace(metric=_metric(metric).value)


def _metric(name: str) -> BenchMetric:
    from sparkdash.bench.judge.metrics import BenchMetric
    from sparkdash.errors import AdmissionError

    try:
        return BenchMetric(name)
    except ValueError:
        raise AdmissionError(
            f"The figure {name} does not exist.",
            code="metric_not_found",
            hint=f"Choose one of {', '.join(BenchMetric)}.",
        ) from None


def _shelf(report: Report) -> LocalProfiles:
    from sparkdash.bench.report.page import LocalProfiles
    from sparkdash.cli.local import configured_catalog

    profiles = configured_catalog().profiles.values()
    measured = {arm.profile for arm in report.arms}
    return LocalProfiles(
        cannot_run={one.name: one.cannot_run for one in profiles if one.cannot_run},
        published={one.name: one.published for one in profiles if one.published},
        weights=_weights([profile for profile in profiles if profile.name in measured]),
    )


def _weights(profiles: Sequence[Profile]) -> dict[str, dict[str, WeightFacts]]:
    """Read the weight facts of each profile from the headers of its weights on this box."""
    from sparkdash import settings
    from sparkdash.catalog.checkpoint import weights
    from sparkdash.domain.weights import WeightFacts

    home = settings.load_settings().hf_home.expanduser()
    return {
        one.name: {
            role: facts
            for role, facts in weights.read_profile_weights(one, home).items()
            if isinstance(facts, WeightFacts)
        }
        for one in profiles
    }
