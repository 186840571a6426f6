"""`sparkdash use --set`: a set of profiles that run side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sparkdash.cli.output.screen import confirm, is_interactive, print_json, print_note, print_text
from sparkdash.units import gib

if TYPE_CHECKING:
    from sparkdash.client.client import AsyncClient
    from sparkdash.domain.state import Snapshot
    from sparkdash.domain.swap import SetPlan


async def use_set(client: AsyncClient, name: str, *, wait: bool, ask: bool, as_json: bool) -> None:
    """Switch to a set: print the sum and what leaves, confirm, bring the members up, wait, report."""
    plan = await client.use_set(name=name, begin=False)
    world = await client.state()
    _announce(plan, world)
    leaves = plan.fits is not False and plan.evict
    if ask and leaves and is_interactive() and not confirm("Go on?"):
        raise typer.Abort
    if not wait:
        plan = await client.use_set(name=name)
        if as_json:
            print_json({"set": name, "ready": False, "plan": plan})
        else:
            print_text(f"The set {name} is starting. `sparkdash status --watch` shows its progress.")
        return
    world = await _up(client, plan)
    if as_json:
        print_json({"set": name, "ready": True, "plan": plan, "url": world.daemon.url})
    else:
        print_text(f"The set {name} is ready at {world.daemon.url}: {', '.join(_names(plan))}.")


async def _up(client: AsyncClient, plan: SetPlan) -> Snapshot:
    import asyncio

    from sparkdash.cli.engines.swap_progress import SwapProgressLine
    from sparkdash.client.follow import until_set_ready

    lines = {name: SwapProgressLine(name) for name in _names(plan)}

    def show(world: Snapshot) -> None:
        for swap in world.swaps_under_way:
            if swap.target in lines:
                lines[swap.target].show(world)

    try:
        return await until_set_ready(client, plan.name, _names(plan), show)
    except asyncio.CancelledError:
        print_note("No longer waiting; the set goes on loading. `sparkdash cancel` cancels the swap.")
        raise
    finally:
        for line in lines.values():
            line.clear()


def _names(plan: SetPlan) -> tuple[str, ...]:
    return tuple(row.profile for row in plan.members)


def _announce(plan: SetPlan, world: Snapshot) -> None:
    for row in plan.members:
        need = "no memory" if row.needs_bytes == 0 else gib(row.needs_bytes)
        print_note(f"{row.profile} needs {need}{' and runs already' if row.runs else ''}.")
    print_note(
        f"Together {gib(plan.needs_bytes)}; {gib(plan.available_bytes)} can be freed beyond the reserve of "
        f"{gib(plan.reserve_bytes)}."
    )
    for name in plan.evict:
        engine = world.engines.get(name)
        busy = f", which serves {engine.in_flight} request(s)" if engine and engine.in_flight else ""
        print_note(f"{name} leaves{busy}.")
