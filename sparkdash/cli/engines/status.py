"""`sparkdash status`: show what runs, its speed, the memory and the queue."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output.screen import make_console, print_json, print_json_line, print_text, wants_colour
from sparkdash.cli.parameters import AsJson, complete_profile

if TYPE_CHECKING:
    from sparkdash.domain.state import Snapshot

REDRAWS_PER_S = 4
EVERY = "all"
NOTHING = "No profile is parked."


def status(
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it until Ctrl-C.")] = False,
    release: Annotated[
        str | None,
        typer.Option(metavar="PROFILE|all", help="Let a parked profile start again.", autocompletion=complete_profile),
    ] = None,
) -> None:
    """Show what runs, its speed, the memory and the queue.

    Shows the daemon, its engines with live figures, the memory, the requests in flight, and the parked profiles with
    their reasons. A profile that fails twice within ten minutes, or twice for the same reason, is parked: its requests
    are refused with the reason, and no engine leaves for it. Fix the cause, then release it. An edit of its launch
    releases it too; `sparkdash use` tries it once.

    With --json: one document, the same as GET /api/state; with --json --watch: one line per change.

    \b
    Examples:
      sparkdash status
      sparkdash status --watch
      sparkdash status --json | jq '.engines | keys'
      sparkdash status --release gpt-oss-120b
    """
    if release is not None:
        return _release(release, as_json=as_json)
    if watch:
        import asyncio

        return asyncio.run(_watch(as_json))
    from sparkdash.client.blocking import Client

    with Client() as client:
        world = client.state()
    if as_json:
        print_json(world)
    else:
        print_text(_text(world))
    return None


def _release(profile: str, *, as_json: bool) -> None:
    from sparkdash.client.blocking import Client

    with Client() as client:
        world = client.state()
        name = next((one.name for one in world.profiles if profile in one.serves), profile)
        released = [each for each in world.parked if profile == EVERY or each == name]
        client.release(profile=None if profile == EVERY else name)
    if as_json:
        print_json({"parked": world.parked, "released": released})
    elif released:
        print_text(f"Released: {', '.join(released)}.")
    else:
        print_text(NOTHING if profile == EVERY else f"{name} was not parked.")


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
