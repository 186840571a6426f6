"""`sparkdash use`: swap to a profile, toggle between two, or print the command that starts its engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.daemon.background import start_daemon_if_needed
from sparkdash.cli.output.screen import confirm, is_interactive, print_json, print_note, print_text
from sparkdash.cli.parameters import AsJson, MaybeProfileName, NoWait, Yes, complete_profile
from sparkdash.errors import AdmissionError
from sparkdash.units import DASH, duration, gib

if TYPE_CHECKING:
    from sparkdash.client.client import AsyncClient
    from sparkdash.domain.state import Snapshot
    from sparkdash.domain.swap import Plan


def use(
    profile: MaybeProfileName = None,
    toggle: Annotated[bool, typer.Option("--toggle", help="Switch to whichever of A and B does not run.")] = False,
    a: Annotated[
        str | None, typer.Option("--a", metavar="PROFILE", help="Mark as A.", autocompletion=complete_profile)
    ] = None,
    b: Annotated[
        str | None, typer.Option("--b", metavar="PROFILE", help="Mark as B.", autocompletion=complete_profile)
    ] = None,
    name_of_set: Annotated[
        str | None, typer.Option("--set", metavar="NAME", help="Switch to a set of config.toml.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the engine's command; start nothing.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="With --dry-run: even if the profile cannot run.")] = False,
    no_wait: NoWait = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Swap to PROFILE and wait until it answers.

    Shows first which engines leave, and asks if that stops something (never in a script). Running requests may finish.
    If no daemon runs, one starts in the background.
    Ctrl-C ends the waiting, not the swap: `sparkdash cancel` does that.

    With --dry-run: print the command that starts the engine, without a daemon or podman; for several nodes, each
    node's. For a profile that cannot run, print the reason, and the command only with --anyway.

    With --json: {profile, ready, plan}, and engine and url once it is ready; an error as {error: {code, message, ...}}.

    \b
    Examples:
      sparkdash use gpt-oss-120b
      sparkdash use qwen3-coder-30b-nvfp4/eagle3 --yes --no-wait
      sparkdash use --a gpt-oss-120b --b qwen3.5-122b/mtp-2
      sparkdash use --toggle
      sparkdash use --set day
      sparkdash use gpt-oss-120b --dry-run
    """
    import asyncio

    marks = toggle or bool(a or b)
    _check_words(profile, name_of_set, toggle=toggle, marks=marks)
    if anyway and not dry_run:
        raise typer.BadParameter("only with --dry-run: a profile that cannot run is not started", param_hint="--anyway")
    if dry_run:
        if profile is None or marks:
            raise typer.BadParameter("give a PROFILE alone", param_hint="--dry-run")
        return _print_command(profile, anyway=anyway, as_json=as_json)
    if profile is not None or name_of_set is not None:  # a mark or a toggle alone brings nothing up for the first time
        start_daemon_if_needed()
    if name_of_set is not None:
        return asyncio.run(_use_set(name_of_set, wait=not no_wait, ask=not yes, as_json=as_json))
    return asyncio.run(_use(profile, a, b, toggle=toggle, wait=not no_wait, ask=not yes, as_json=as_json))


def _check_words(profile: str | None, name_of_set: str | None, *, toggle: bool, marks: bool) -> None:
    """Refuse words that say nothing, or two things at once."""
    if name_of_set is not None and (profile or marks):
        raise typer.BadParameter("--set stands alone", param_hint="--set")
    if not (profile or marks or name_of_set is not None):
        raise typer.BadParameter("give a PROFILE, --toggle, --set, or --a and --b", param_hint="PROFILE")
    if profile is not None and toggle:
        raise typer.BadParameter("give a PROFILE or --toggle, not both", param_hint="PROFILE")
    if profile == "auto":
        raise typer.BadParameter(
            "'auto' works in requests only: it means whatever runs. Name a profile", param_hint="PROFILE"
        )


def _print_command(name: str, *, anyway: bool, as_json: bool) -> None:
    from sparkdash.cli.local import engine_command

    planned = engine_command(name, anyway=anyway)
    if planned.cannot_run:
        print_note(f"{planned.profile} cannot run: {planned.cannot_run}.")
    if as_json:
        print_json(planned._asdict())
    elif planned.nodes:
        _print_by_node(planned.nodes)
    else:
        print_text(planned.shell)


def _print_by_node(commands: list[dict[str, object]]) -> None:
    """Print each node's command under a comment with its name; all of it is a shell's text."""
    from sparkdash.cli.placeholders import EXPLAINED
    from sparkdash.domain.node import LOCAL

    for one in commands:
        print_text(f"# on {'this box' if one['node'] == LOCAL else one['node']}")
        print_text(str(one["shell"]))
    print_note(EXPLAINED)


async def _use_set(name: str, *, wait: bool, ask: bool, as_json: bool) -> None:
    from sparkdash.cli.engines.use_set import use_set
    from sparkdash.client.client import AsyncClient

    async with AsyncClient() as client:
        await use_set(client, name, wait=wait, ask=ask, as_json=as_json)


async def _use(
    profile: str | None, a: str | None, b: str | None, *, toggle: bool, wait: bool, ask: bool, as_json: bool
) -> None:
    from sparkdash.client.client import AsyncClient

    async with AsyncClient() as client:
        pair = await client.toggle(a=a, b=b) if a or b else None
        if pair:
            print_note(f"A is {pair.a or DASH}, B is {pair.b or DASH}.")
            if pair.a == pair.b:
                print_note("A and B are the same: there is nothing to switch between.")
        name = _other(await client.state()) if toggle else profile
        if name:
            await switch_to(client, name, wait=wait, ask=ask, as_json=as_json)
        elif as_json:
            print_json(pair)


async def switch_to(client: AsyncClient, name: str, *, wait: bool, ask: bool, as_json: bool) -> None:
    """Bring a profile up: print what leaves, confirm, swap, wait, report."""
    world = await client.state()
    plan = await client.plan(name=name)
    if not _is_name_of(name, plan.profile, world):
        print_note(f"{name} means {plan.profile} now.")
    if plan.expected_s == 0 and not plan.evict:
        return _runs_already(plan, world, as_json=as_json)
    announce_plan(plan, world)
    _warn(plan, world)
    if ask and plan.evict and is_interactive() and not confirm("Go on?"):
        raise typer.Abort
    if wait:
        return _done(plan, await _up(client, plan.profile), as_json=as_json)
    plan = await client.use(profile=plan.profile)
    return _begun(plan, as_json=as_json)


def _is_name_of(name: str, profile: str, world: Snapshot) -> bool:
    """Whether this is a profile's own name or alias; a name for several in `config.toml` is not."""
    known = world.profile(profile)
    return known is None or any(
        name.lower() in (one.lower(), one.rpartition("/")[2].lower()) for one in (known.name, *known.serves)
    )


def _warn(plan: Plan, world: Snapshot) -> None:
    """Print what `profiles check` calls an error: a typo is cheaper to mend before minutes of loading."""
    from sparkdash.cli.profiles.check import start_warnings
    from sparkdash.cli.profiles.local_files import on_this_box

    if on_this_box(world) and not world.daemon.simulated:
        for text in start_warnings(plan.profile):
            print_note(f"warning: {text}")


async def _up(client: AsyncClient, name: str) -> Snapshot:
    """Swap, wait until the engine is ready and draw the progress."""
    import asyncio

    from sparkdash.cli.engines.swap_progress import SwapProgressLine
    from sparkdash.client.follow import until_ready

    progress = SwapProgressLine(name)
    try:
        return await until_ready(client, name, progress.show)
    except asyncio.CancelledError:
        progress.clear()
        print_note("No longer waiting; the swap continues. `sparkdash cancel` cancels it.")
        raise
    finally:
        progress.clear()


def _other(world: Snapshot) -> str:
    """Return whichever of A and B neither runs nor is starting."""
    if world.toggle_a is None or world.toggle_b is None:
        raise AdmissionError(
            "No pair of profiles is marked, so there is nothing to switch between.",
            code="toggle_unset",
            hint="Mark a pair: `sparkdash use --a PROFILE --b PROFILE`.",
        )
    coming = next((swap.target for swap in world.swaps_under_way if swap.target is not None), None)
    present = coming or (world.active and world.active.profile)
    return world.toggle_b if present == world.toggle_a else world.toggle_a


def announce_plan(plan: Plan, world: Snapshot) -> None:
    """Print which engines leave for a profile, and whether it fits."""
    from sparkdash.domain.phrases import plan_boxes, then_available

    if plan.held:
        print_note(plan.held)
    for name in plan.evict:
        _announce_leaving(name, plan, world)
    if plan.beside and plan.expected_s != 0:
        print_note(f"It runs beside {', '.join(plan.beside)}.")
    if plan.fits is False and plan.available_bytes is None:  # no node for it: the refusal that follows says why
        return
    if plan.needs_bytes:  # a server that runs elsewhere takes nothing here
        host = world.daemon.host
        boxes = plan_boxes(plan, host, several=bool(world.nodes))
        where = f" on {'each of ' if len(plan.nodes) > 1 else ''}{boxes}" if boxes else ""
        print_note(f"It needs {gib(plan.needs_bytes)}{where}; {then_available(plan, host)} will be available.")
    if plan.fits is False:
        print_note("It does not fit.")
    if plan.expected_s:
        print_note(f"It takes about {duration(plan.expected_s)}.")


def _announce_leaving(name: str, plan: Plan, world: Snapshot) -> None:
    engine = world.engines.get(name)
    busy = f", which serves {engine.in_flight} request(s)" if engine and engine.in_flight else ""
    print_note(f"{plan.profile} replaces {name if name != plan.profile else 'itself'}{busy}.")
    if reason := plan.reasons.get(name):
        print_note(f"  {name}: {reason}.")


def _begun(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        return print_json({"profile": plan.profile, "ready": False, "plan": plan})
    left = f", replacing {', '.join(plan.evict)}" if plan.evict else ""
    print_text(f"{plan.profile} is starting{left}. `sparkdash status --watch` shows its progress.")
    return None


def _runs_already(plan: Plan, world: Snapshot, *, as_json: bool) -> None:
    if as_json:
        return _done(plan, world, as_json=True)
    engine = world.engines[plan.profile]
    mark = " (SIMULATED)" if engine.simulated else ""
    print_text(
        f"{plan.profile} is running already, ready for {duration(world.at - (engine.ready_at or world.at))}{mark}."
    )
    return None


def _done(plan: Plan, world: Snapshot, *, as_json: bool) -> None:
    engine = world.engines[plan.profile]
    if as_json:
        return print_json(
            {"profile": plan.profile, "ready": True, "plan": plan, "engine": engine, "url": world.daemon.url}
        )
    took = f" after {duration(engine.load_s)}" if engine.load_s is not None else ""
    mark = " (SIMULATED)" if engine.simulated else ""
    print_text(f"{plan.profile} is ready at {world.daemon.url}{took}{mark}.")
    return None
