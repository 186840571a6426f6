"""`sparkdash status`: show what runs, its speed, the memory and the queue."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output.screen import make_console, print_json, print_json_line, print_text, wants_colour
from sparkdash.cli.parameters import AsJson

if TYPE_CHECKING:
    from sparkdash.domain.state import Snapshot

REDRAWS_PER_S = 4


def status(
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it until Ctrl-C.")] = False,
) -> None:
    """Show what runs, its speed, the memory and the queue.

    Shows the daemon, its engines with live figures, the memory, and the requests in flight.

    With --json: one document, the same as GET /api/state; with --json --watch: one line per change.

    \b
    Examples:
      sparkdash status
      sparkdash status --watch
      sparkdash status --json | jq '.engines | keys'
    """
    if watch:
        import asyncio

        asyncio.run(_watch(as_json))
        return
    from sparkdash.client.blocking import Client

    with Client() as client:
        world = client.state()
    if as_json:
        print_json(world)
    else:
        print_text(_text(world))


def _text(world: Snapshot) -> str:
    from sparkdash.cli.engines.status_page import status_lines

    return "\n".join(status_lines(world))


async def _watch(as_json: bool) -> None:
    from sparkdash.client.client import AsyncClient
    from sparkdash.client.follow import state_changes

    with _canvas(as_json) as show:
        async with AsyncClient() as client, state_changes(client) as changes:
            async for world in changes:
                show(world)


@contextmanager
def _canvas(as_json: bool) -> Iterator[Callable[[Snapshot], None]]:
    """Yield the function that shows a snapshot: a JSON line, a block of text, or a live terminal display."""
    if as_json:
        yield print_json_line
    elif not wants_colour(sys.stdout):
        yield lambda world: print_text(f"{_text(world)}\n")
    else:
        from rich.live import Live
        from rich.text import Text

        with Live(console=make_console(sys.stdout), refresh_per_second=REDRAWS_PER_S) as live:
            yield lambda world: live.update(Text(_text(world)))
