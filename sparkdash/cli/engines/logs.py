"""`sparkdash logs`: print an engine's log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.engines.last_failure import evidence_of
from sparkdash.cli.output.screen import print_note, print_text
from sparkdash.cli.parameters import MaybeProfileName
from sparkdash.errors import AdmissionError

if TYPE_CHECKING:
    from sparkdash.domain.state import Snapshot


def logs(
    profile: MaybeProfileName = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until Ctrl-C or the engine's end.")
    ] = False,
    lines: Annotated[int | None, typer.Option("--lines", "-n", help="Only the last N lines.", min=0)] = None,
) -> None:
    """Print an engine's log.

    Without PROFILE: the engine that runs or is starting. If it was stuck in the last day, the folder with the evidence
    follows on stderr.

    \b
    Examples:
      sparkdash logs
      sparkdash logs gpt-oss-120b -n 50
      sparkdash logs -f | grep -i error
    """
    from sparkdash.client.blocking import Client

    with Client() as client:
        name = profile or _present(client.state())
        said = False
        for line in client.logs(name=name, follow=follow, tail=lines):
            print_text(line)
            said = True
        folder = None if follow else evidence_of(client.state(), name)
    if folder:
        print_note(f"Evidence of its last incident: {folder}")
    if not said and lines != 0:
        print_note(f"{name} has logged nothing since the daemon started.")


def _present(world: Snapshot) -> str:
    """Guess which engine is meant: one that is starting, one that runs, or the last one that failed."""
    if world.swap and world.swap.target in world.engines:
        return str(world.swap.target)
    if world.active:
        return world.active.profile
    if world.engines:
        return max(world.engines.values(), key=lambda engine: engine.since).profile
    raise AdmissionError(
        "No engine runs, so there is no log to show.",
        code="nothing_runs",
        hint="`sparkdash profiles` lists what can be started with `sparkdash use`.",
    )
