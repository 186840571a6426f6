"""`sparkdash bench export`: write a report as a file of one of its formats.

Owns: which format goes where. Must not know: how anything is measured. No daemon is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.bench.report_source import (
    LayoutName,
    MathRun,
    Matrix,
    MatrixSuite,
    MetricName,
    choose_layout,
    local_profiles,
    merge_matrix,
    read_report,
)
from sparkdash.cli.output.screen import print_note, print_text

if TYPE_CHECKING:
    from sparkdash.bench.report.report import Report
    from sparkdash.domain.weights import WeightFacts


class ReportFormat(StrEnum):
    """Formats that `bench export` can write."""

    MD = "md"
    CSV = "csv"
    JSON = "json"
    HTML = "html"
    LOCALMAXXING = "localmaxxing"
    SPARK_ARENA = "spark-arena"


def export(
    run: Annotated[
        str | None, typer.Argument(help="A run's id, its beginning, or `last`.", metavar="RUN", show_default=False)
    ] = None,
    form: Annotated[ReportFormat, typer.Option("--format", "-f", help="Output format.")] = ReportFormat.MD,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Output file; default: stdout.")] = None,
    layout: LayoutName = None,
    metric: MetricName = None,
    math: MathRun = None,
    arm: Annotated[
        str | None, typer.Option("--arm", help="For localmaxxing and spark-arena: the arm; default: the baseline.")
    ] = None,
    matrix: Matrix = False,
    suite: MatrixSuite = None,
) -> None:
    """Write a run, or many merged, as Markdown, CSV, JSON or HTML.

    CSV has llama-benchy's columns; `localmaxxing` writes a submission for that site; `spark-arena` writes recipe,
    figures and metadata into the folder of --output. Nothing is sent.

    \b
    Examples:
      sparkdash bench export last -o report.md
      sparkdash bench export 20261121 --layout qwen3-coder --math last -o m.md
      sparkdash bench export last --format html -o report.html
      sparkdash bench export last --format csv | column -ts,
      sparkdash bench export last --format spark-arena -o submission/
    """
    if run is None and not matrix:
        raise typer.BadParameter("give a RUN, or --matrix for all runs of a suite", param_hint="RUN")
    asked = ExportOptions(run, form, layout, metric, math, arm, matrix=matrix, suite=suite)
    if form is ReportFormat.SPARK_ARENA:
        if output is None or matrix:
            raise typer.BadParameter("spark-arena writes three files of one run; name a folder", param_hint="--output")
        for name, text in _arena_files(asked).items():
            _write(output / name, text)
        return
    text = _rendered(asked)
    if output is None:
        print_text(text, nl=False)
        return
    _write(output, text)


def _write(file: Path, text: str) -> None:
    from sparkdash.errors import HostError

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise HostError(f"{file} cannot be written: {error.strerror}.", code="report_unwritable") from error
    print_note(f"Wrote {file}.")


def _arena_files(asked: ExportOptions) -> dict[str, str]:
    """Build the files of a submission; the recipe is that of the profile as it is now."""
    from sparkdash.bench import run_folder
    from sparkdash.bench.report.formats import localmaxxing, spark_arena
    from sparkdash.catalog.sparkrun_recipe import sparkrun_recipe
    from sparkdash.cli.local import export_spec

    report = asked.report()
    name = asked.arm or report.run.baseline
    spark_arena.refuse_unfit(report)
    profile = localmaxxing.find_arm(report, name).profile
    recipe = sparkrun_recipe(*export_spec(profile))
    results = run_folder.read_results(run_folder.find_run(asked.run or "last"))
    return spark_arena.build_files(results, report, recipe, name, weights=_weights(report, profile))


def _weights(report: Report, profile: str) -> WeightFacts | None:
    return local_profiles(report).weights.get(profile, {}).get("target")


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of one export, as given on the command line."""

    run: str | None
    form: ReportFormat
    layout: str | None
    metric: str | None
    math: str | None
    arm: str | None
    matrix: bool
    suite: str | None

    def report(self) -> Report:
        """Assemble the report. Raises AdmissionError."""
        if self.matrix:
            return merge_matrix(self.run, self.suite, self.math)
        return read_report(self.run or "last", self.math)


def _rendered(asked: ExportOptions) -> str:
    from sparkdash.bench import run_folder
    from sparkdash.bench.report.formats import llama_benchy, markdown
    from sparkdash.bench.report.page import report_charts, report_page

    if asked.form is ReportFormat.CSV and not asked.matrix:
        return llama_benchy.render_csv(run_folder.read_results(run_folder.find_run(asked.run or "last")))
    if asked.matrix and asked.form in (ReportFormat.CSV, ReportFormat.LOCALMAXXING):
        raise typer.BadParameter(f"{asked.form.value} describes one run; give its RUN", param_hint="--matrix")
    report = asked.report()
    if asked.form is ReportFormat.JSON:
        return report.model_dump_json(indent=2) + "\n"
    if asked.form is ReportFormat.LOCALMAXXING:
        return _submission(report, asked)
    shelf, chosen = local_profiles(report), choose_layout(report, asked.layout, asked.metric)
    if asked.form is ReportFormat.HTML:
        from sparkdash.bench.report.formats import html

        return html.render_html(report_page(report, chosen, shelf), report_charts(report, chosen, shelf))
    return markdown.render_markdown(report_page(report, chosen, shelf))


def _submission(report: Report, asked: ExportOptions) -> str:
    from pydantic_core import to_json

    from sparkdash.bench.report.formats import localmaxxing

    profile = localmaxxing.find_arm(report, asked.arm or report.run.baseline).profile
    payload = localmaxxing.build_submission(report, asked.arm, weights=_weights(report, profile))
    if missing := localmaxxing.missing_fields(payload):
        print_note(f"Fill in before sending: {', '.join(missing)}.")
    return to_json(payload, indent=2).decode() + "\n"
