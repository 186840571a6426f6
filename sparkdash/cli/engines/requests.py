"""`sparkdash requests`: list waiting and running requests, or send a captured one again and compare both answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.engines.use import announce_plan
from sparkdash.cli.output.screen import confirm, is_interactive, print_json, print_note, print_text
from sparkdash.cli.output.tables import format_table
from sparkdash.cli.parameters import AsJson, Yes, complete_profile

if TYPE_CHECKING:
    from sparkdash.domain.history import Replay
    from sparkdash.domain.lease import Request
    from sparkdash.domain.state import Snapshot


def requests(
    everything: Annotated[bool, typer.Option("--all", help="Also list the last ended requests.")] = False,
    replay: Annotated[
        str | None, typer.Option("--replay", metavar="ID", help="Send this captured request again to --on.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="PROFILE", help="Profile that answers it now.", autocompletion=complete_profile),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List the requests that wait or run, oldest first.

    With --replay and --on: send a captured request again to another profile. Shows the figures of both answers beside
    each other, and where their texts differ. `capture = true` in config.toml keeps requests from then on; `sparkdash
    history --by request` lists ids. Shows first which engines leave, and asks if that stops something (never in a
    script). No text of a request or an answer is printed. Ctrl-C ends the replay.

    \b
    Examples:
      sparkdash requests
      sparkdash requests --all
      sparkdash requests --json | jq -r '.[].id'
      sparkdash requests --replay 1a2b3c4d5e6f700 --on gpt-oss-120b
    """
    from sparkdash.client.blocking import Client

    if (replay is None) != (on is None):
        raise typer.BadParameter("--replay ID and --on PROFILE go together", param_hint="--replay")
    if replay is not None and on is not None:
        return _replay(replay, on, yes=yes, as_json=as_json)
    with Client() as client:
        world = client.state()
    rows = [*world.requests.values(), *(world.recent if everything else ())]
    if as_json:
        print_json(rows)
    elif rows:
        head = ("id", "client", "profile", "state", "age", "prompt", "out", "tok/s")
        print_text("\n".join(format_table(head, [_row(row, world) for row in rows], "<<<<>>>>")))
    else:
        print_text("No request is waiting or running.")
    return None


def _replay(request: str, on: str, *, yes: bool, as_json: bool) -> None:
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
        _print_replay(done)
    if done.answer is None or done.answer.state is not RequestState.DONE:
        raise typer.Exit(1)


def _print_replay(done: Replay) -> None:
    from sparkdash.domain.phrases import caution_text, figure_rows, match_text

    before = done.original.profile if done.original else "captured"
    print_text("\n".join(format_table(("", before, f"{done.profile} (replay)"), figure_rows(done), "<>>")))
    print_text(match_text(done))
    if caution := caution_text(done):
        print_note(caution)


def _row(row: Request, world: Snapshot) -> tuple[str, ...]:
    from sparkdash.domain.phrases import about, figures_of_request, request_phase, wait_reason, waiting_on
    from sparkdash.units import age, number, tokens

    figures, why = figures_of_request(row, world.sample), wait_reason(row, world)
    why = why and f" {why}"
    place = f" #{row.position}" if row.position is not None else ""
    engine = world.engines.get(row.profile) if row.finished_at is None else None
    stuck = waiting_on(engine.liveness, world.at) if engine is not None else ""
    return (
        row.id,
        row.client,
        row.profile,
        row.error
        or f"{request_phase(row, world.sample, world.at, timed=False)}{place}{f', {stuck}' if stuck else why}",
        age((row.finished_at or world.at) - row.started_at),
        about(tokens(figures.prompt), estimated=figures.prompt_estimated),
        about(tokens(figures.output), estimated=figures.output_estimated),
        number(figures.tok_s, 1),
    )
