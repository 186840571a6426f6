"""`sparkdash requests`: list waiting and running requests with the ids that `cancel` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output.screen import print_json, print_text
from sparkdash.cli.output.tables import format_table
from sparkdash.cli.parameters import AsJson

if TYPE_CHECKING:
    from sparkdash.domain.lease import Request
    from sparkdash.domain.state import Snapshot


def requests(
    everything: Annotated[bool, typer.Option("--all", help="Also list the last ended requests.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the requests that wait or run, oldest first.

    \b
    Examples:
      sparkdash requests
      sparkdash requests --all
      sparkdash requests --json | jq -r '.[].id'
    """
    from sparkdash.client.blocking import Client

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


def _row(row: Request, world: Snapshot) -> tuple[str, ...]:
    from sparkdash.domain.text.live_text import about, figures_of_request, request_phase, wait_reason
    from sparkdash.domain.text.repair_text import waiting_on
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
