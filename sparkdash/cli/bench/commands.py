"""`sparkdash bench`: measure a profile, resume a run, list runs and suites.

Owns: the command group, and that `bench PROFILE` means `bench run PROFILE`. Must not know: how anything is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from sparkdash.cli.bench import captured, export, reports, run_list, watch
from sparkdash.cli.output import RIGHT, print_json, print_text, terminal_width, wrap_last_column
from sparkdash.cli.parameters import AsJson, Yes, complete_profile

if TYPE_CHECKING:
    from sparkdash.bench.results import Results


class RunByDefault(TyperGroup):
    """Command group in which `bench PROFILE` means `bench run PROFILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `run` before an argument that names no command."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="bench",
    cls=RunByDefault,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="""Measure a profile; show and export the results.

    Answer lengths are forced, no cache knows the prompts, and every request is checked.

    \b
    Examples:
      sparkdash bench gpt-oss-120b --suite smoke
      sparkdash bench --url http://127.0.0.1:8000 --suite prefill
      sparkdash bench resume last
      sparkdash bench show last
      sparkdash bench export last --layout qwen3-coder -o matrix.md
    """,
)


for _command in (reports.show, reports.diff, export.export, captured.captured, watch.watch):
    app.command()(_command)


def complete_suite(incomplete: str) -> list[str]:
    """Complete the name of a suite."""
    from sparkdash.bench.plan import suites

    return sorted(name for name in suites.suite_files() if name.startswith(incomplete))


def complete_corpus(incomplete: str) -> list[str]:
    """Complete the name of a shipped corpus."""
    from sparkdash.bench.plan.corpora import SHIPPED

    return [name for name in SHIPPED if name.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Complete the id of a run."""
    from sparkdash.bench import run_folder

    return [place.name for place in run_folder.list_runs() if place.name.startswith(incomplete)]


SuiteName = Annotated[
    str,
    typer.Option("--suite", "-s", metavar="SUITE", help="A suite's name or file.", autocompletion=complete_suite),
]
Direct = Annotated[bool, typer.Option("--direct", help="Ask the engine directly, not through the gateway.")]
Share = Annotated[
    bool, typer.Option("--share", help="Let others use the gateway meanwhile; their requests void cells.")
]
Corpus = Annotated[
    str | None,
    typer.Option(
        "--corpus", metavar="TEXT", help="Cut the prompts from this text: prose, code, or a file.",
        autocompletion=complete_corpus,
    ),
]  # fmt: skip
Fresh = Annotated[bool, typer.Option("--fresh", help="Start a new run even if an equal one was stopped.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of prompts and order; runs with equal seeds can be compared.")]
Reps = Annotated[
    int | None, typer.Option("--reps", min=1, help="Repetitions per cell and launch, where the suite sets none.")
]
RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's id, its beginning, or `last`.", autocompletion=complete_run),
]


@app.command()
def run(
    profile: Annotated[
        str | None, typer.Argument(metavar="PROFILE", help="A profile's name.", autocompletion=complete_profile)
    ] = None,
    suite: SuiteName = "smoke",
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="A server that sparkdash does not manage.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="The server's model, if it serves several.")] = None,
    corpus: Corpus = None,
    direct: Direct = False,
    share: Share = False,
    reps: Reps = None,
    seed: Seed = 1,
    fresh: Fresh = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Measure PROFILE with one launch of its engine. The plan is shown first.

    Running engines are stopped, the profile gets a new engine, and other clients are told to come back later (--share
    lets them in). Ctrl-C stops the run at any point; the same command resumes it.

    \b
    Examples:
      sparkdash bench gpt-oss-120b
      sparkdash bench run qwen3-coder-30b-nvfp4 --suite seeds --yes
      sparkdash bench --url http://127.0.0.1:8000 --suite prefill
    """
    from sparkdash.bench.run import Mode
    from sparkdash.cli.bench.measure import MeasureOptions, measure

    if (profile is None) == (url is None):
        raise typer.BadParameter("give a PROFILE or --url", param_hint="PROFILE")
    if model is not None and profile is not None and "://" not in profile:
        raise typer.BadParameter("use --model with --url only; a profile has one model", param_hint="--model")
    if url is not None and "://" not in url:
        raise typer.BadParameter("give an address such as http://127.0.0.1:8000", param_hint="--url")
    wish = MeasureOptions(
        arms=(profile or url or "",), suite=suite, mode=Mode.SCREEN, corpus=corpus, model=model, direct=direct,
        share=share, reps=reps, seed=seed, fresh=fresh, ask=not yes, as_json=as_json,
    )  # fmt: skip
    measure(wish)


@app.command()
def resume(name: RunName = "last", share: Share = False, yes: Yes = False, as_json: AsJson = False) -> None:
    """Resume a run that was stopped, killed or cut off.

    Only missing cells are measured.

    \b
    Examples:
      sparkdash bench resume
      sparkdash bench resume 20260801-2200
    """
    from sparkdash.cli.bench.measure import resume_run

    resume_run(name, share=share, ask=not yes, as_json=as_json)


@app.command("list")
def list_runs(as_json: AsJson = False) -> None:
    """List the runs, the newest first.

    The list shows how many cells of each run are measured.

    \b
    Examples:
      sparkdash bench list
      sparkdash bench list --json
    """
    from sparkdash.bench import run_folder

    found = [run_folder.read_results(place) for place in run_list.readable_runs(run_folder.list_runs())]
    if as_json:
        return print_json([_as_json(one) for one in found])
    return run_list.print_runs(found)


@app.command()
def suites(as_json: AsJson = False) -> None:
    """List the suites of sparkdash and your own.

    Your own suites are YAML files in the folder `suites` beside config.toml.

    \b
    Examples:
      sparkdash bench suites
    """
    from sparkdash.bench.plan import suites as known
    from sparkdash.bench.run import Mode

    found = [known.load_suite(name) for name in sorted(known.suite_files())]
    if as_json:
        return print_json([one.model_dump(mode="json") | {"hash": one.hash} for one in found])
    rows = [(one.suite, one.version, str(len(one.planned(Mode.STANDARD))), one.about) for one in found]
    head = ("SUITE", "VERSION", "CELLS", "ABOUT")
    return print_text("\n".join(wrap_last_column(head, rows, f"<<{RIGHT}", terminal_width())))


@app.command()
def calibrate(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE", help="A profile's name.", autocompletion=complete_profile)
    ],
    suite: SuiteName = "smoke",
    share: Share = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Measure the box's own noise: one profile against itself.

    The profile is launched six times. Later comparisons on this box claim no difference smaller than this noise.

    \b
    Examples:
      sparkdash bench calibrate gpt-oss-120b
    """
    from sparkdash.bench.run import Mode
    from sparkdash.cli.bench.measure import MeasureOptions, measure

    measure(
        MeasureOptions(
            arms=(profile, profile), suite=suite, mode=Mode.STANDARD, share=share, ask=not yes, as_json=as_json,
            calibrates=True,
        )
    )  # fmt: skip


def _as_json(found: Results) -> dict[str, Any]:
    from sparkdash.bench.report.void_counts import count_voids

    return {
        "run": found.run, "missing": found.gaps(), "launches": len(found.launches), "samples": len(found.samples),
        "void": sum(one.void is not None for one in found.samples),
        "void_reasons": count_voids(found), "damaged": len(found.damaged),
    }  # fmt: skip
