"""`sparkdash bench` and `sparkdash ab`: measure profiles, resume a run, make a suite, list runs and suites."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from sparkdash import paths
from sparkdash.cli.bench import reports
from sparkdash.cli.output import print_json, print_note, print_table
from sparkdash.cli.parameters import AsJson, ProfileName, Yes, complete_profile
from sparkdash.errors import AdmissionError, writing

if TYPE_CHECKING:
    from sparkdash.bench.plan.suites import CapturedRequest, Chat


MOST, OUTPUT = 20, 256


def _capture(name: str, most: int, output: int) -> None:
    from sparkdash.bench.plan import suites as kept
    from sparkdash.catalog import yaml12

    source = paths.state_dir() / "captured.jsonl"
    try:
        with paths.open_regular(source) as lines:
            requests, others = kept.select_requests((line.decode() for line in lines), most)
    except OSError as error:
        raise AdmissionError(
            f"{source} cannot be read: {error.strerror}.", code="nothing_captured", status=404,
            hint="Set `capture = true` in config.toml to keep what clients send from then on.",
        ) from error  # fmt: skip
    chats, unused = _chats(requests)
    others += unused
    if not chats:
        routes = ", ".join((kept.ROUTE, *kept.TRANSLATED))
        raise AdmissionError(
            f"{source} has no chats ({others} other requests).", code="nothing_captured", status=404,
            hint=f"Only requests to {routes} of up to 1 MiB are used.",
        )  # fmt: skip
    digest = kept.chats_digest(chats)
    suite = {
        "suite": name, "version": digest[:8],
        "about": f"{len(chats)} captured chats of your own; their text stays on this box.",
        "prompts": f"{name}.prompts", "prompts_sha256": digest,
        "cells": [{"output": output, "text": kept.TEXT, "reps": len(chats)}],
    }  # fmt: skip
    folder = paths.config_dir() / "suites"
    _must_be_free(name, suite)
    with writing(folder, "suite_unwritable"):
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{kept.chat_line(chat)}\n" for chat in chats)
        paths.replace_file(folder / f"{name}.prompts", text.encode())
        (folder / f"{name}.yaml").write_text(yaml12.dump(suite), encoding="utf-8")
    print_note(
        f"Wrote {folder / name}.yaml: {len(chats)} chats ({others} other requests were skipped). "
        f"Measure them with `--suite {name}`."
    )


def _chats(requests: "Sequence[CapturedRequest]") -> "tuple[tuple[Chat, ...], int]":
    """Return the chats of captured requests, and how many requests gave none; other protocols are translated."""
    from sparkdash.bench.plan.suites import ROUTE, different_chats
    from sparkdash.gateway.translate.requests import as_chat

    def chat(path: str, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        try:
            return body if path == ROUTE else as_chat(path, body).body
        except AdmissionError:
            return None

    bodies = [chat(path, body) for path, body in requests]
    return different_chats(body for body in bodies if body is not None), sum(body is None for body in bodies)


def _must_be_free(name: str, suite: dict[str, Any]) -> None:
    from pydantic import ValidationError

    from sparkdash.bench.plan import suites

    try:
        suites.Suite.model_validate(suite)
    except ValidationError:
        raise AdmissionError(
            f"{name!r} is not a valid name for a suite.", code="suite_name_invalid",
            hint="Use small letters, digits, - and _; begin with a letter or a digit.",
        ) from None  # fmt: skip
    file = suites.suite_files().get(name)
    if file is not None and not file.with_suffix(".prompts").exists():
        raise AdmissionError(
            f"The suite {name} exists already: {file}.", code="suite_exists", status=409, hint="Choose another name.",
        )  # fmt: skip


class RunByDefault(TyperGroup):
    """Command group in which `bench PROFILE` means `bench run PROFILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        profiles = self.commands["run"].params[0].shell_complete(ctx, incomplete)
        return [*super().shell_complete(ctx, incomplete), *profiles]


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
      sparkdash bench resume last
      sparkdash bench show last
      sparkdash bench export last --layout qwen3-coder -o matrix.md
    """,
)


for _command in (reports.show, reports.export, reports.watch):
    app.command()(_command)


SuiteName = Annotated[
    str,
    typer.Option(
        "--suite", "-s", metavar="SUITE", help="A suite's name or file.", autocompletion=reports.complete_suite
    ),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start a new run even if an equal one was stopped.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of prompts and order; runs with equal seeds can be compared.")]
Reps = Annotated[
    int | None, typer.Option("--reps", min=1, help="Repetitions per cell and launch, where the suite sets none.")
]
RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run's id, its beginning, or `last`.", autocompletion=reports.complete_run),
]


@app.command()
def run(
    profile: ProfileName,
    suite: SuiteName = "smoke",
    reps: Reps = None,
    seed: Seed = 1,
    fresh: Fresh = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Measure PROFILE with one launch of its engine. The plan is shown first.

    Running engines are stopped, the profile gets a new engine, and other clients are told to come back later. Ctrl-C
    stops the run at any point; the same command resumes it.

    \b
    Examples:
      sparkdash bench gpt-oss-120b
      sparkdash bench run qwen3-coder-30b-nvfp4 --suite seeds --yes
    """
    from sparkdash.bench.run import Mode
    from sparkdash.cli.bench.measure import MeasureOptions, measure

    wish = MeasureOptions(
        arms=(profile,), suite=suite, mode=Mode.SCREEN,
        reps=reps, seed=seed, fresh=fresh, ask=not yes, as_json=as_json,
    )  # fmt: skip
    measure(wish)


@app.command()
def resume(name: RunName = "last", yes: Yes = False, as_json: AsJson = False) -> None:
    """Resume a run that was stopped, killed or cut off.

    Only missing cells are measured.

    \b
    Examples:
      sparkdash bench resume
      sparkdash bench resume 20260801-2200
    """
    from sparkdash.cli.bench.measure import resume_run

    resume_run(name, ask=not yes, as_json=as_json)


@app.command()
def suites(
    captured: Annotated[
        str | None, typer.Option("--captured", metavar="NAME", help="Make the suite NAME of what your clients sent.")
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, help="Take the last N different chats.")] = MOST,
    output: Annotated[
        int, typer.Option("--output", min=16, help="Tokens of each answer, the same for every profile.")
    ] = OUTPUT,
    as_json: AsJson = False,
) -> None:
    """List all suites, or make one of captured requests.

    Your own suites are YAML files in the folder `suites` beside config.toml.

    A suite of captured requests compares the speed of profiles on your own work. `capture = true` in config.toml keeps
    the requests. Their text is copied into a file beside the suite that only you can read. It stays on this box; no
    report or export contains it. The suite's hash identifies its prompts. Requests of Anthropic's Messages and OpenAI's
    Responses (Claude Code, Codex) are translated into the chats that an engine without those protocols would get.

    \b
    Examples:
      sparkdash bench suites
      sparkdash bench suites --captured mine
      sparkdash bench suites --captured mine --most 100 --output 512
      sparkdash ab A B --suite mine
    """
    if captured is not None:
        return _capture(captured, most, output)
    from sparkdash.bench.plan import suites as known
    from sparkdash.bench.run import Mode

    found = [known.load_suite(name) for name in sorted(known.suite_files())]
    if as_json:
        return print_json([one.model_dump(mode="json") | {"hash": one.hash} for one in found])
    rows = [(one.suite, one.version, str(len(one.planned(Mode.STANDARD))), one.about) for one in found]
    return print_table(("SUITE", "VERSION", "CELLS", "ABOUT"), rows, "<<><")


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
        typer.Option("--sweep", metavar="NAME=VALUES", help="Compare one profile at several values of this flag."),
    ] = None,
    reps: Reps = None,
    seed: Seed = 1,
    fresh: Fresh = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and measure nothing.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Measure profiles against each other, with a verdict per cell.

    The command swaps, measures, puts the box back as it was, and reports what can be claimed. Each launch starts a new
    engine. Each profile has three launches, in an order that is drawn for the run, such as A A B B A B, so that drift
    of the box rarely looks like a difference. Mode screen is A B and claims nothing; careful has four launches of each
    profile. The plan is shown first. Ctrl-C stops the run at any point; the same command resumes it, also after a
    crash.

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
        arms=tuple(profiles), suite=suite, mode=Mode(mode), reps=reps,
        seed=seed,
        fresh=fresh, sweep=sweep, dry_run=dry_run, ask=not yes, as_json=as_json,
    )  # fmt: skip
    measure(wish)
