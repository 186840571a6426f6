"""`sparkdash ab`: compare profiles over several engine launches, with a verdict per cell."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from sparkdash.cli.bench.commands import Corpus, Direct, Fresh, Reps, Seed, Share, SuiteName
from sparkdash.cli.parameters import AsJson, Yes, complete_profile


class BenchMode(StrEnum):
    """Modes of the bench, repeated here so that --help does not load the bench."""

    SCREEN = "screen"
    STANDARD = "standard"
    CAREFUL = "careful"


def ab(
    profiles: Annotated[
        list[str],
        typer.Argument(metavar="PROFILE", help="Profiles; the first is the baseline.", autocompletion=complete_profile),
    ],
    suite: SuiteName = "smoke",
    mode: Annotated[
        BenchMode, typer.Option("--mode", "-m", help="How many launches are measured, and so what can be claimed.")
    ] = BenchMode.STANDARD,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            metavar="NAME=VALUES",
            help="Compare one profile at several values of this flag.",
        ),
    ] = None,
    corpus: Corpus = None,
    direct: Direct = False,
    share: Share = False,
    reps: Reps = None,
    seed: Seed = 1,
    fresh: Fresh = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and measure nothing.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Measure profiles against each other, with a verdict per cell.

    The command swaps, measures, swaps back, and reports what can be claimed. Each launch starts a new engine. Each
    profile has three launches, in an order that is drawn for the run, such as A A B B A B, so that drift of the box
    rarely looks like a difference. Mode screen is A B and claims nothing; careful has four launches of each profile. The
    plan is shown first. Ctrl-C stops the run at any point; the same command resumes it, also after a crash.

    \b
    Examples:
      sparkdash ab qwen3.5-122b qwen3.5-122b/mtp-2 --suite seeds
      sparkdash ab A B C --suite concurrency --mode careful --yes
      sparkdash ab gpt-oss-120b gpt-oss-120b --mode screen
      sparkdash ab gpt-oss-120b qwen3.5-122b --dry-run
      sparkdash ab NAME --sweep num_speculative_tokens=0..4 -s classes
    """
    from sparkdash.bench.run import Mode
    from sparkdash.cli.bench.measure import MeasureOptions, measure

    if sweep and len(profiles) > 1:
        raise typer.BadParameter("--sweep takes one profile", param_hint="PROFILES")
    if len(profiles) < 2 and not sweep:
        raise typer.BadParameter(
            "give at least two profiles; `sparkdash bench PROFILE` measures one", param_hint="PROFILES"
        )
    wish = MeasureOptions(
        arms=tuple(profiles), suite=suite, mode=Mode(mode), corpus=corpus, direct=direct, share=share, reps=reps,
        seed=seed,
        fresh=fresh, sweep=sweep, dry_run=dry_run, ask=not yes, as_json=as_json,
    )  # fmt: skip
    measure(wish)
