"""`sparkdash replay`: send a captured request again to another profile, and compare both answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.engines.use import announce_plan
from sparkdash.cli.output.screen import confirm, is_interactive, print_json, print_note, print_text
from sparkdash.cli.output.tables import format_table
from sparkdash.cli.parameters import AsJson, Yes, complete_profile

if TYPE_CHECKING:
    from sparkdash.domain.history.replay import Replay


def replay(
    request: Annotated[str, typer.Argument(metavar="ID", help="Id of a captured request.")],
    on: Annotated[
        str,
        typer.Option("--on", metavar="PROFILE", help="Profile that answers it now.", autocompletion=complete_profile),
    ],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send a captured request again to another profile.

    Shows the figures of both answers beside each other, and where their texts differ. `capture = true` in config.toml
    keeps requests from then on; `sparkdash history --by request` lists ids. Shows first which engines leave, and asks
    if that stops something (never in a script). No text of a request or an answer is printed. Ctrl-C ends the replay.

    With --json: {request, profile, plan, original, answer, match: {identical, differs_at, before, after}, ...}.

    \b
    Examples:
      sparkdash replay 1a2b3c4d5e6f700 --on gpt-oss-120b
      sparkdash replay 1a2b3c4d5e6f700 --on qwen3-coder-30b-nvfp4 --yes
      sparkdash replay 1a2b3c4d5e6f700 --on gpt-oss-120b --json
    """
    from sparkdash.client.blocking import Client
    from sparkdash.domain.lease import RequestState

    with Client() as client:
        planned = client.replay(request=request, on=on)
        if planned.plan.expected_s != 0 or planned.plan.evict:
            announce_plan(planned.plan, client.state())
        if planned.plan.evict and not yes and is_interactive() and not confirm("Go on?"):
            raise typer.Abort
        done = client.replay(request=request, on=on, begin=True)
    if as_json:
        print_json(done)
    else:
        _print(done)
    if done.answer is None or done.answer.state is not RequestState.DONE:
        raise typer.Exit(1)


def _print(done: Replay) -> None:
    from sparkdash.domain.text.replay_text import caution_text, figure_rows, match_text

    before = done.original.profile if done.original else "captured"
    print_text("\n".join(format_table(("", before, f"{done.profile} (replay)"), figure_rows(done), "<>>")))
    print_text(match_text(done))
    if caution := caution_text(done):
        print_note(caution)
