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
from sparkdash.cli.output import print_note, print_text

if TYPE_CHECKING:
    from sparkdash.bench.report.report import Report


class ReportFormat(StrEnum):
    """Formats that `bench export` can write."""

    MD = "md"
    CSV = "csv"
    JSON = "json"
    HTML = "html"


def export(
    run: Annotated[
        str | None, typer.Argument(help="A run's id, its beginning, or `last`.", metavar="RUN", show_default=False)
    ] = None,
    form: Annotated[ReportFormat, typer.Option("--format", "-f", help="Output format.")] = ReportFormat.MD,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Output file; default: stdout.")] = None,
    layout: LayoutName = None,
    metric: MetricName = None,
    math: MathRun = None,
    matrix: Matrix = False,
    suite: MatrixSuite = None,
) -> None:
    """Write a run, or many merged, as Markdown, CSV, JSON or HTML.

    CSV has llama-benchy's columns. Nothing is sent.

    \b
    Examples:
      sparkdash bench export last -o report.md
      sparkdash bench export 20261121 --layout qwen3-coder --math last -o m.md
      sparkdash bench export last --format html -o report.html
      sparkdash bench export last --format csv | column -ts,
    """
    if run is None and not matrix:
        raise typer.BadParameter("give a RUN, or --matrix for all runs of a suite", param_hint="RUN")
    asked = ExportOptions(run, form, layout, metric, math, matrix=matrix, suite=suite)
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


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of one export, as given on the command line."""

    run: str | None
    form: ReportFormat
    layout: str | None
    metric: str | None
    math: str | None
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
    if asked.form is ReportFormat.CSV:
        raise typer.BadParameter("csv describes one run; give its RUN", param_hint="--matrix")
    report = asked.report()
    if asked.form is ReportFormat.JSON:
        return report.model_dump_json(indent=2) + "\n"
    shelf, chosen = local_profiles(report), choose_layout(report, asked.layout, asked.metric)
    if asked.form is ReportFormat.HTML:
        from sparkdash.bench.report.formats import html

        return html.render_html(report_page(report, chosen, shelf), report_charts(report, chosen, shelf))
    return markdown.render_markdown(report_page(report, chosen, shelf))
