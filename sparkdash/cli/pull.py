"""`sparkdash pull`: fetch a profile's image, apart from any swap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sparkdash.cli.parameters import AsJson, ProfileName
from sparkdash.cli.screen import LiveLine, emit_line
from sparkdash.units import percent

if TYPE_CHECKING:
    from sparkdash.domain.container import PullProgress


def pull(profile: ProfileName, as_json: AsJson = False) -> None:
    """Fetch the image that a profile needs. What runs goes on running.

    With --json: one document per step of progress.

    \b
    Examples:
      sparkdash pull gpt-oss-120b
      sparkdash pull gpt-oss-120b --json
    """
    from sparkdash.client.client import Client

    line, last = LiveLine(), None
    with Client() as client:
        for last in client.pull(profile):
            if as_json:
                emit_line(last)
            else:
                line.draw(_text(last), last.detail)
    line.clear()
    if last is not None and not as_json:
        typer.echo(f"{last.image} is here.")


def _text(step: PullProgress) -> str:
    share = f"{percent(step.fraction)}  " if step.fraction is not None else ""
    return f"{step.image}  {share}{step.detail}"
