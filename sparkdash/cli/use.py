"""`sparkdash use`, `stop` and `cancel`: what runs, and the end of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sparkdash.cli.output import confirm, is_interactive, print_json, print_note, print_text
from sparkdash.cli.parameters import AsJson, MaybeProfileName, NoWait, ProfileName, Yes
from sparkdash.cli.running_daemon import start_daemon_if_needed
from sparkdash.errors import AdmissionError
from sparkdash.units import counted, duration, gib, natural

if TYPE_CHECKING:
    from sparkdash.client.client import AsyncClient
    from sparkdash.domain.state import Snapshot
    from sparkdash.domain.swap import Plan


def _busy_text(name: str, world: Snapshot) -> str:
    engine = world.engines.get(name)
    return f", which serves {counted(engine.in_flight, 'request')}" if engine and engine.in_flight else ""


def use(
    profile: ProfileName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the engine's command; start nothing.")] = False,
    no_wait: NoWait = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Swap to PROFILE and wait until it answers.

    Shows first which engines leave, and asks if that stops something (never in a script). Running requests may finish.
    If no daemon runs, one starts in the background.
    Ctrl-C ends the waiting, not the swap: `sparkdash cancel` does that.

    With --dry-run: print the command that starts the engine, without a daemon or podman; for several nodes, each
    node's.

    With --json: {profile, ready, plan}, and engine and url once it is ready; an error as {error: {code, message, ...}}.

    \b
    Examples:
      sparkdash use gpt-oss-120b
      sparkdash use qwen3-coder-30b-nvfp4/eagle3 --yes --no-wait
      sparkdash use gpt-oss-120b --dry-run
    """
    import asyncio

    if profile in ("", "auto"):
        raise typer.BadParameter("name a profile; 'auto' works in requests only: whatever runs", param_hint="PROFILE")
    if dry_run:
        return _print_command(profile, as_json=as_json)
    start_daemon_if_needed(profile)
    return asyncio.run(_use(profile, wait=not no_wait, ask=not yes, as_json=as_json))


def _print_command(name: str, *, as_json: bool) -> None:
    from sparkdash.cli.local import engine_command
    from sparkdash.cli.profiles.check import file_warnings
    from sparkdash.domain.node import LOCAL

    planned = engine_command(name)
    for text in file_warnings(planned.profile):
        print_note(text)
    if as_json:
        print_json(planned._asdict())
    elif planned.nodes:
        for one in planned.nodes:  # all of it is a shell's text
            print_text(f"# on {'this box' if one['node'] == LOCAL else one['node']}\n{one['shell']}")
        print_note("Words such as ADDRESS_OF_… stand for what sparkdash finds on each node at a start.")
    else:
        print_text(planned.shell)


async def _use(profile: str, *, wait: bool, ask: bool, as_json: bool) -> None:
    from sparkdash.client.client import AsyncClient

    async with AsyncClient() as client:
        await switch_to(client, profile, wait=wait, ask=ask, as_json=as_json)


async def switch_to(client: AsyncClient, name: str, *, wait: bool, ask: bool, as_json: bool) -> None:
    from sparkdash.client.follow import until_ready

    world = await client.state()
    plan = await client.plan(name=name)
    if not _is_name_of(name, plan.profile, world):
        print_note(f"{name} means {plan.profile} now.")
    if plan.expected_s == 0 and not plan.evict:
        return _runs_already(plan, world, as_json=as_json)
    await announce_swap(client, plan, world, ask=ask)
    if wait:
        with _progress(plan.profile, "the swap continues. `sparkdash cancel` cancels it") as show:
            world = await until_ready(client, plan.profile, show)
        return _done(plan, world, as_json=as_json)
    return _begun(await client.use(profile=plan.profile), as_json=as_json)


async def announce_swap(client: AsyncClient, plan: Plan, world: Snapshot, *, ask: bool) -> None:
    """Print who leaves and what the profile needs; ask if an engine stops. Raises typer.Abort after a no."""
    _print_plan(plan, world)
    await note_broken_file(client, plan.profile)
    _warn(plan, world)
    stops = plan.evict and plan.fits is not False  # a plan that does not fit is refused, and stops nobody
    if ask and stops and is_interactive() and not confirm("Go on?"):
        raise typer.Abort


async def note_broken_file(client: AsyncClient, name: str) -> None:
    from sparkdash.domain.phrases import last_good_lines

    if problems := (await client.profiles()).problems:
        for line in last_good_lines(await client.profile(name=name), problems):
            print_note(line)


def _is_name_of(name: str, profile: str, world: Snapshot) -> bool:
    """Whether this is a profile's own name or alias; a name for several in `config.toml` is not."""
    known = world.profile(profile)
    return known is None or any(
        name.lower() in (one.lower(), one.rpartition("/")[2].lower()) for one in (known.name, *known.serves)
    )


def _warn(plan: Plan, world: Snapshot) -> None:
    """Print what `profiles check` calls an error: a typo is cheaper to fix before minutes of loading."""
    from sparkdash.cli.local import on_this_box
    from sparkdash.cli.profiles.check import start_warnings

    if on_this_box(world) and not world.daemon.simulated:
        for text in start_warnings(plan.profile):
            print_note(text)


def _print_plan(plan: Plan, world: Snapshot) -> None:
    begins = plan.fits is not False and not (plan.held and not plan.evict)
    told = [plan.held or "", *(_moves(plan, world) if begins else ()), *_needs(plan, world)]
    if plan.expected_s and begins:
        told.append(f"It takes about {duration(plan.expected_s)}.")
    for text in filter(None, told):
        print_note(text)


def _moves(plan: Plan, world: Snapshot) -> Iterator[str]:
    for name in plan.evict:
        yield f"{plan.profile} replaces {name if name != plan.profile else 'itself'}{_busy_text(name, world)}."
        if reason := plan.reasons.get(name):
            yield f"  {name}: {reason}."
    if plan.beside and plan.expected_s != 0:
        yield f"It runs beside {', '.join(plan.beside)}."


def _needs(plan: Plan, world: Snapshot) -> Iterator[str]:
    from sparkdash.domain.phrases import plan_boxes, then_available

    if plan.fits is False and plan.available_bytes is None:  # no node for it: the refusal that follows says why
        return
    if plan.needs_bytes:  # a server that runs elsewhere takes nothing here
        host = world.daemon.host
        boxes = plan_boxes(plan, host, several=bool(world.nodes))
        where = f" on {'each of ' if len(plan.nodes) > 1 else ''}{boxes}" if boxes else ""
        yield f"It needs {gib(plan.needs_bytes)}{where}; {then_available(plan, host)} will be available."
    if plan.fits is False:
        yield "It does not fit."


def _begun(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        print_json({"profile": plan.profile, "ready": False, "plan": plan})
    else:
        left = f", replacing {', '.join(plan.evict)}" if plan.evict else ""
        print_text(f"{plan.profile} is starting{left}. `sparkdash status --watch` shows its progress.")


def _runs_already(plan: Plan, world: Snapshot, *, as_json: bool) -> None:
    if as_json:
        return _done(plan, world, as_json=True)
    engine = world.engines[plan.profile]
    mark = " (SIMULATED)" if engine.simulated else ""
    ready = duration(world.at - (engine.ready_at or world.at))
    return print_text(f"{plan.profile} is running already, ready for {ready}{mark}.")


def _done(plan: Plan, world: Snapshot, *, as_json: bool) -> None:
    engine = world.engines[plan.profile]
    url = world.daemon.url
    if as_json:
        return print_json({"profile": plan.profile, "ready": True, "plan": plan, "engine": engine, "url": url})
    took = f" after {duration(engine.load_s)}" if engine.load_s is not None else ""
    mark = " (SIMULATED)" if engine.simulated else ""
    return print_text(f"{plan.profile} is ready at {url}{took}{mark}.")


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
    from sparkdash.client.client import Client

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
    from sparkdash.client.client import AsyncClient, Client
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
    if stopped:
        print_text(f"{', '.join(stopped)} {'has stopped' if wait else 'is stopping'}.")
    for each in sorted(foreign, key=natural):
        text = f"{each} is no longer used. The server at {foreign[each]} keeps running: sparkdash did not start it."
        print_text(text)


def _meant(world: Snapshot, running: set[str], profile: str | None) -> set[str]:
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

    from sparkdash.cli.status_page import SwapProgressLine

    progress = SwapProgressLine(goal)
    try:
        yield progress.show
    except asyncio.CancelledError:
        progress.line.clear()
        print_note(f"No longer waiting; {goes_on}.")
        raise
    finally:
        progress.line.clear()
