"""`sparkdash stop` and `sparkdash cancel`: end an engine, the daemon, a request or the swaps under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sparkdash.cli.output.screen import print_json, print_note, print_text
from sparkdash.cli.parameters import AsJson, MaybeProfileName, NoWait
from sparkdash.errors import AdmissionError
from sparkdash.units import natural

if TYPE_CHECKING:
    from sparkdash.client.client import AsyncClient
    from sparkdash.domain.state import Snapshot


def stop(
    profile: MaybeProfileName = None,
    everything: Annotated[bool, typer.Option("--all", help="Stop every engine.")] = False,
    daemon: Annotated[
        bool, typer.Option("--daemon", help="End the daemon; its engines keep running unless --all is given.")
    ] = False,
    no_wait: NoWait = False,
    as_json: AsJson = False,
) -> None:
    """Stop an engine; without PROFILE the one that runs. Running requests may finish.

    A server that sparkdash did not start (engine `openai`) keeps running, and is no longer used.

    \b
    Examples:
      sparkdash stop
      sparkdash stop gpt-oss-120b
      sparkdash stop --all
      sparkdash stop --daemon          engines keep running for the next daemon
      sparkdash stop --daemon --all
    """
    import asyncio

    if profile is not None and (everything or daemon):
        raise typer.BadParameter("give a PROFILE, or --all and --daemon, not both", param_hint="PROFILE")
    if daemon:
        asyncio.run(_stop_daemon("stop" if everything else "keep", wait=not no_wait, as_json=as_json))
    else:
        asyncio.run(_stop(profile, everything=everything, wait=not no_wait, as_json=as_json))


def cancel(
    request: Annotated[str | None, typer.Argument(metavar="REQUEST", help="The id of a request.")] = None,
    as_json: AsJson = False,
) -> None:
    """Cancel every swap under way, or end one REQUEST.

    The request's client gets the reason, and its engine stops working on it.

    \b
    Examples:
      sparkdash cancel
      sparkdash cancel 5d0f1b2c3a4e        an id of `sparkdash requests`
    """
    import asyncio

    if request is None:
        asyncio.run(_cancel_swap(as_json=as_json))
        return
    from sparkdash.client.blocking import Client

    with Client() as client:
        client.cancel_request(request_id=request)
    print_json({"cancelled": {"request": request}}) if as_json else print_text(f"Cancelled request {request}.")


async def _cancel_swap(*, as_json: bool) -> None:
    from sparkdash.client.client import AsyncClient
    from sparkdash.client.follow import until_cancelled

    async with AsyncClient() as client:
        swaps = (await client.state()).swaps_under_way
        if swaps:
            with _progress(swaps[0].target or "the end", "the swap is cancelled anyway") as show:
                await until_cancelled(client, show)
    if as_json:
        print_json({"cancelled": next(iter(swaps), None), "cancelled_beside": swaps[1:]})
    else:
        for swap in swaps:
            what = f"swap to {swap.target}" if swap.target else f"stop of {', '.join(swap.evict)}"
            print_text(f"Cancelled the {what}.")
        if not swaps:
            print_text("No swap is under way.")


async def _stop_daemon(engines: Literal["keep", "stop"], *, wait: bool, as_json: bool) -> None:
    from sparkdash.client import launch
    from sparkdash.client.blocking import Client
    from sparkdash.client.client import AsyncClient
    from sparkdash.client.follow import until_silent

    async with AsyncClient() as client:
        world = await client.state()
        kept = _serving(world) if engines == "keep" else []
        given_up = [swap.target for swap in world.swaps_under_way if swap.target is not None]
        await client.shutdown(engines=engines)
        if wait:
            with _progress("the end", "the daemon keeps shutting down") as show:
                await until_silent(client, show)
    if wait:
        with Client() as asked:
            launch.wait_ended(asked)
    if as_json:
        print_json({"daemon": "stopped" if wait else "stopping", "engines_kept": kept})
    else:
        print_text("The daemon has ended." if wait else "The daemon is ending.")
        if kept:
            print_text(f"Still running: {', '.join(kept)}.")
        if given_up:
            print_text(f"The load of {' and '.join(given_up)} was cancelled.")


def _serving(world: Snapshot) -> list[str]:
    """Return the engines that the next daemon adopts; an engine that is still loading ends with this daemon."""
    from sparkdash.domain.engine import EngineState

    states = (EngineState.READY, EngineState.DRAINING)
    return sorted((name for name, engine in world.engines.items() if engine.state in states), key=natural)


async def _stop(profile: str | None, *, everything: bool, wait: bool, as_json: bool) -> None:
    from sparkdash.client.client import AsyncClient

    async with AsyncClient() as client:
        world = await client.state()
        running = {*world.engines, *world.unadopted}
        names = running if everything else _meant(world, running, profile)
        absent = names - running - {swap.target for swap in world.swaps_under_way}
        if names:
            await _end(client, None if everything else names.copy().pop(), wait=wait)
    foreign = {name: engine.url for name, engine in world.engines.items() if name in names and engine.is_foreign}
    stopped = sorted(names - absent - foreign.keys(), key=natural)
    if as_json:
        print_json({"stopped": stopped, "left_running": sorted(foreign, key=natural), "waited": wait})
        return
    if not names:
        print_text("No engine is running.")
    if absent:
        print_text(f"{', '.join(sorted(absent, key=natural))} is not running.")
    _print_stopped(stopped, foreign, wait=wait)


def _print_stopped(stopped: list[str], foreign: Mapping[str, str | None], *, wait: bool) -> None:
    if stopped:
        print_text(f"{', '.join(stopped)} {'has stopped' if wait else 'is stopping'}.")
    for name in sorted(foreign, key=natural):
        print_text(
            f"{name} is no longer used. The server at {foreign[name]} keeps running: sparkdash did not start it."
        )


def _meant(world: Snapshot, running: set[str], profile: str | None) -> set[str]:
    """Return the engine to stop; an unknown name is left for the daemon to refuse."""
    if profile is not None:
        return {next((one.name for one in world.profiles if profile in one.serves), profile)}
    if len(running) > 1:
        raise AdmissionError(
            f"{len(running)} engines run: {', '.join(sorted(running, key=natural))}.",
            code="which_engine",
            hint="Name one, or give --all.",
        )
    return running


async def _end(client: AsyncClient, name: str | None, *, wait: bool) -> None:
    from sparkdash.client.follow import until_stopped

    if not wait:
        await client.stop(profile=name, wait=False)
        return
    with _progress(name or "the end", "the engine keeps stopping") as show:
        await until_stopped(client, name, show)


@contextmanager
def _progress(goal: str, goes_on: str) -> Iterator[Callable[[Snapshot], None]]:
    """Draw the progress of an order; if the user stops waiting, print what becomes of the order."""
    import asyncio

    from sparkdash.cli.engines.swap_progress import SwapProgressLine

    progress = SwapProgressLine(goal)
    try:
        yield progress.show
    except asyncio.CancelledError:
        progress.clear()
        print_note(f"No longer waiting; {goes_on}.")
        raise
    finally:
        progress.clear()
