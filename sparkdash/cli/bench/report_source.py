"""Reports as the commands of the bench read them: one run, or many merged, with layout and local profiles.

Owns: how a word of the command line becomes a report, a layout, a metric; the options that its commands share.
Must not know: forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.bench import run_list
from sparkdash.cli.output import print_note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkdash.bench.judge.metrics import BenchMetric
    from sparkdash.bench.report.layout import Layout
    from sparkdash.bench.report.page import LocalProfiles
    from sparkdash.bench.report.report import Report
    from sparkdash.bench.run import Run
    from sparkdash.domain.profile import Profile
    from sparkdash.domain.weights import WeightFacts

MATH = "math"
"""Suite whose right answers a matrix shows."""
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


Matrix = Annotated[
    bool, typer.Option("--matrix", help="Merge all runs of a suite: of each cell the newest that counts.")
]
MatrixSuite = Annotated[
    str | None,
    typer.Option("--suite", "-s", metavar="SUITE", help="For --matrix: the suite; default: the newest run's."),
]


def read_report(run: str, math: str | None = None) -> Report:
    """Assemble the report of a run; `math` adds the right answers of another. Raises AdmissionError."""
    from sparkdash.bench import run_folder
    from sparkdash.bench.report.assemble import add_math_scores, assemble_report

    found = assemble_report(run_folder.read_results(run_folder.find_run(run)))
    return found if math is None else add_math_scores(found, read_report(math))


def merge_matrix(run: str | None, suite: str | None, math: str | None, *, simulated: bool = False) -> Report:
    """Merge the runs of a suite, and the newest right answers of the suite `math`."""
    from sparkdash.bench import run_folder
    from sparkdash.bench.report.assemble import add_math_scores
    from sparkdash.bench.report.merged_runs import merge_runs, select_runs

    if run is not None:
        raise typer.BadParameter("--matrix reads all runs of a suite; give --suite instead of a RUN", param_hint="RUN")
    places = {place.name: place for place in run_list.readable_runs(run_folder.list_runs())}
    known = [run_folder.read_run(place) for place in places.values()]

    def merged(runs: Sequence[Run]) -> Report:
        return merge_runs([run_folder.read_results(places[one.id]) for one in runs])

    chosen = _chosen_runs(known, suite, simulated=True if simulated else None)
    report = merged(chosen)
    if math is not None:
        return add_math_scores(report, read_report(math))
    asked = select_runs(known, MATH, simulated=chosen[0].simulated) if chosen[0].suite != MATH else []
    return add_math_scores(report, merged(asked)) if asked else report


def _chosen_runs(known: Sequence[Run], suite: str | None, *, simulated: bool | None) -> list[Run]:
    """Return the runs of one matrix; tell how many of another version of the suite are left out."""
    from sparkdash.bench.report.merged_runs import select_runs
    from sparkdash.errors import AdmissionError

    runs = [one for one in known if suite is not None or one.suite != MATH]
    chosen = select_runs(runs, suite, simulated=simulated)
    if not chosen:
        raise AdmissionError(
            f"There is no run of {suite or 'any suite'} to merge.", code="run_not_found", status=404,
            hint="`sparkdash bench show` lists them.",
        )  # fmt: skip
    first = chosen[0]
    if others := sum(one.suite == first.suite and one.suite_hash != first.suite_hash for one in runs):
        print_note(f"{others} runs of another version of the suite {first.suite} are left out.")
    return chosen


def choose_layout(report: Report, name: str | None, metric: str | None) -> Layout:
    """Load the named layout, or derive one from the report. Raises AdmissionError."""
    from sparkdash.bench.report.layout import derive_layout
    from sparkdash.bench.report.layouts import load_layout

    layout = derive_layout(report) if name is None else load_layout(name)
    return layout if metric is None else layout.replace(metric=parse_metric(metric).value)


def parse_metric(name: str) -> BenchMetric:
    """Return the metric of that name. Raises AdmissionError."""
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


def local_profiles(report: Report) -> LocalProfiles:
    """Read what this box knows of the measured profiles."""
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
