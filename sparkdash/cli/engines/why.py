"""`sparkdash why`: explain whether a profile fits now and which engines would leave for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sparkdash.cli.engines import last_failure
from sparkdash.cli.output.screen import print_json, print_text
from sparkdash.cli.parameters import AsJson, ProfileName
from sparkdash.units import duration, gib

if TYPE_CHECKING:
    from sparkdash.client.blocking import Client
    from sparkdash.domain.state import Snapshot
    from sparkdash.domain.swap import Plan

LABEL = 16


def why(profile: ProfileName, as_json: AsJson = False) -> None:
    """Tell whether PROFILE fits now, and who would leave for it.

    Shows its need by term, the available memory, who would leave and why, and whether the memory guard permits the
    load. If it does not fit: who else holds memory, and the command that frees it. Nothing is started or stopped.

    With --json: the plan, as `use --json` has it under "plan".

    \b
    Examples:
      sparkdash why gpt-oss-120b
      sparkdash why qwen3-coder-30b-nvfp4/eagle3 --json
    """
    from sparkdash.client.blocking import Client

    with Client() as client:
        plan = client.plan(name=profile)
        world = client.state()
        others = [] if as_json or plan.fits or not plan.needs_bytes else _others(client)
    if as_json:
        print_json(plan)
    else:
        columns = shutil.get_terminal_size().columns
        print_text("\n".join([*why_lines(plan, world, columns, others), *stuck_lines(plan.profile, world, columns)]))


def _others(client: Client) -> list[str]:
    """Describe the largest foreign holders of memory; empty when the daemon does not report them, as in the demo."""
    from sparkdash.cli.memory import largest_holders
    from sparkdash.errors import SparkdashError

    try:
        return list(largest_holders(client.memory()))
    except SparkdashError:
        return []


def why_lines(plan: Plan, world: Snapshot, columns: int, others: Sequence[str] = ()) -> Iterator[str]:
    """Format the plan: guard hold, memory terms, boxes, leaving engines, verdict, other holders."""
    from sparkdash.cli.profiles.page import need_lines, wrap_beside_label
    from sparkdash.domain.phrases import now_available, plan_boxes, then_available

    host = world.daemon.host
    yield plan.profile
    if plan.held:
        yield from wrap_beside_label(_row("held back", ""), plan.held, columns)
    yield from need_lines(plan.need, columns)
    each = " on each" if len(plan.nodes) > 1 else ""
    if boxes := plan_boxes(plan, host, several=bool(world.nodes)):
        yield _row("runs on", boxes + (f", the need{each}" if each else ""))
    yield _row("available now", now_available(plan, host))
    yield _row("reserve", f"{gib(plan.reserve_bytes)}, kept free{each} (`reserve_gib` in config.toml)")
    for name in plan.evict:
        yield _row("leaves", f"{name}: {plan.reasons.get(name, '')}")
    for name in plan.beside:
        yield _row("stays", name)
    if plan.evict:
        yield _row("available then", f"{then_available(plan, host)}, without the reserve")
    if plan.expected_s:
        yield _row("takes about", duration(plan.expected_s))
    yield plan.verdict
    for number, one in enumerate(others):
        yield from wrap_beside_label(_row("" if number else "others hold", ""), one, columns)


def stuck_lines(profile: str, world: Snapshot, columns: int) -> Iterator[str]:
    """Format the last failure, its evidence, and the state of a stuck engine."""
    from sparkdash.cli.profiles.page import wrap_beside_label
    from sparkdash.domain.phrases import is_told, repair_text, state_text, step_text

    for label, text in last_failure.failure_rows(world, profile):
        yield from wrap_beside_label(_row(label, ""), text, columns)
    engine = world.engines.get(profile)
    if engine is not None and engine.liveness is not None and is_told(engine.liveness):
        words = f"{state_text(engine.liveness, world.at)}: {engine.liveness.why}"
        yield from wrap_beside_label(_row("its engine", ""), words, columns)
        if step := step_text(engine.liveness, world.at):
            yield _row("", step)
    if time := world.repairs.by_profile.get(profile):
        yield _row("was stuck", repair_text(time))


def _row(label: str, text: str) -> str:
    return f"  {label:<{LABEL}}{text}"
