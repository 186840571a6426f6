"""`sparkdash bench watch`: whether a profile got slower after a pull or an update, by all recorded runs.

Owns: the command and its exit status. Must not know: how builds compare. No daemon is asked.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.bench import run_list
from sparkdash.cli.bench.report_source import parse_metric
from sparkdash.cli.output import make_console, print_json, terminal_width
from sparkdash.cli.parameters import AsJson, complete_profile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkdash.bench.results import Results


def watch(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="A profile's name.", autocompletion=complete_profile)
    ],
    metric: Annotated[
        str, typer.Option("--metric", help="decode, e2e, prefill, ttft, ttfv, visible or aggregate.")
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
    from sparkdash.bench.watch.builds import watched_evenings
    from sparkdash.bench.watch.page import watch_page
    from sparkdash.bench.watch.regression import Outlook, watch_profile
    from sparkdash.errors import AdmissionError

    wanted = parse_metric(metric)
    evenings = watched_evenings(_runs_of(profile), profile, wanted)
    if not evenings.periods:
        raise AdmissionError(
            f"{profile} has no {wanted.value} figure in any recorded run.", code="run_not_found", status=404,
            hint=f"`sparkdash bench {profile} --suite smoke` measures it; `sparkdash bench list` lists the runs.",
        )  # fmt: skip
    found = watch_profile(profile, wanted, evenings)
    if as_json:
        print_json(found)
    else:
        from sparkdash.bench.report.formats.terminal import print_page as draw

        draw(watch_page(found), make_console(sys.stdout, terminal_width()))
    if found.last is not None and found.last.outlook is Outlook.SLOWER:
        raise typer.Exit(1)


def _runs_of(profile: str) -> Iterator[Results]:
    """Yield the readable runs with an arm of that profile."""
    from sparkdash.bench import run_folder

    for place in run_list.readable_runs(run_folder.list_runs()):
        if any(arm.profile == profile for arm in run_folder.read_run(place).arms):
            yield run_folder.read_results(place)
