"""`sparkdash status`, `why`, `requests` and `logs`: what runs, waits, fits or failed."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli import output
from sparkdash.cli.parameters import AsJson, MaybeProfileName, ProfileName, Yes, complete_profile
from sparkdash.cli.use import announce_swap
from sparkdash.errors import AdmissionError, SparkdashError
from sparkdash.units import age, duration, percent

if TYPE_CHECKING:
    from sparkdash.client.client import Client
    from sparkdash.domain.engine import Failure
    from sparkdash.domain.history import Replay
    from sparkdash.domain.profile import Profile
    from sparkdash.domain.request import Request
    from sparkdash.domain.state import Snapshot
    from sparkdash.domain.swap import Plan


EVERY = "all"


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
    from sparkdash.client.client import Client

    with Client() as client:
        world = client.state()
    return output.print_json(world) if as_json else output.print_text(_text(world))


def _release(profile: str, *, as_json: bool) -> None:
    from sparkdash.client.client import Client

    with Client() as client:
        world = client.state()
        name = next((one.name for one in world.profiles if profile in one.serves), profile)
        released = [each for each in world.parked if profile == EVERY or each == name]
        client.release(profile=None if profile == EVERY else name)
    if as_json:
        output.print_json({"parked": world.parked, "released": released})
    elif released:
        output.print_text(f"Released: {', '.join(released)}.")
    else:
        output.print_text("No profile is parked." if profile == EVERY else f"{name} was not parked.")


def _text(world: Snapshot) -> str:
    from sparkdash.cli.status_page import status_lines

    return "\n".join(status_lines(world))


async def _watch(as_json: bool) -> None:
    from sparkdash.client.client import AsyncClient
    from sparkdash.client.follow import state_changes

    with _canvas(as_json) as show:
        async with AsyncClient() as client, aclosing(state_changes(client)) as changes:
            async for world in changes:
                show(world)


@contextmanager
def _canvas(as_json: bool) -> Iterator[Callable[[Snapshot], None]]:
    if as_json:
        yield output.print_json_line
    elif not output.wants_colour(sys.stdout):
        yield lambda world: output.print_text(f"{_text(world)}\n")
    else:
        from rich.live import Live
        from rich.text import Text

        console = output.make_console(sys.stdout)
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        try:
            with Live(console=console, refresh_per_second=4) as live:
                yield lambda world: live.update(Text(_text(world)))
        finally:
            console.show_cursor()  # however early the end comes


RECENT_S = 86_400.0
"""Incidents are shown for a day; `sparkdash history --by incident` lists older ones."""


def failure_of(world: Snapshot, profile: str) -> Failure | None:
    engine, parked = world.engines.get(profile), world.parked.get(profile)
    if engine is not None and engine.failure is not None:
        return engine.failure
    return parked.failure if parked is not None else None


def evidence_of(world: Snapshot, profile: str) -> str | None:
    failure = failure_of(world, profile)
    if failure is not None and failure.evidence:
        return failure.evidence
    recent = (one for one in world.incidents if one.profile == profile and world.at - one.named_at < RECENT_S)
    return next((one.evidence for one in recent if one.evidence), None)


def failure_rows(world: Snapshot, profile: str) -> Iterator[tuple[str, str]]:
    failure, engine = failure_of(world, profile), world.engines.get(profile)
    if failure is not None:
        when = f"{age(max(0.0, world.at - engine.since))} ago: " if engine is not None and engine.failure else ""
        yield "last failure", f"{when}{failure.message}"
        if failure.hint:
            yield "", failure.hint
    if folder := evidence_of(world, profile):
        yield "evidence", folder


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
    from sparkdash.client.client import Client

    with Client() as client:
        name = profile or _present(client.state())
        said = False
        for line in client.logs(name=name, follow=follow, tail=lines):
            output.print_text(line)
            said = True
        folder = None if follow else evidence_of(client.state(), name)
    if folder:
        output.print_note(f"Evidence of its last incident: {folder}")
    if not said and lines != 0:
        output.print_note(f"{name} has logged nothing since the daemon started.")


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


def requests(
    everything: Annotated[bool, typer.Option("--all", help="Also list the last ended requests.")] = False,
    replay: Annotated[
        str | None, typer.Option("--replay", metavar="ID", help="Send this captured request again to --on.")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="PROFILE", help="Profile that answers it now.", autocompletion=complete_profile),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List the requests that wait or run, oldest first.

    With --replay and --on: send a captured request again to another profile. Shows the figures of both answers beside
    each other, and where their texts differ. `capture = true` in config.toml keeps requests from then on; `sparkdash
    history --by request` lists ids. Shows first which engines leave, and asks if that stops something (never in a
    script). No text of a request or an answer is printed. Ctrl-C ends the replay.

    \b
    Examples:
      sparkdash requests
      sparkdash requests --all
      sparkdash requests --json | jq -r '.[].id'
      sparkdash requests --replay 1a2b3c4d5e6f700 --on gpt-oss-120b
    """
    import asyncio

    from sparkdash.client.client import Client

    if (replay is None) != (on is None):
        raise typer.BadParameter("--replay ID and --on PROFILE go together", param_hint="--replay")
    if replay is not None and on is not None:
        return asyncio.run(_replay(replay, on, yes=yes, as_json=as_json))
    with Client() as client:
        world = client.state()
    rows = [*world.requests.values(), *(world.recent if everything else ())]
    if as_json:
        output.print_json(rows)
    elif rows:
        head = ("id", "client", "profile", "state", "age", "prompt", "out", "tok/s")
        output.print_table(head, [_request_row(row, world) for row in rows], "<<<<>>>>")
    else:
        output.print_text("No request is waiting or running.")
    return None


async def _replay(request: str, on: str, *, yes: bool, as_json: bool) -> None:
    from sparkdash.client.client import AsyncClient
    from sparkdash.domain.request import RequestState

    async with AsyncClient() as client:
        plan = (await client.replay(request=request, on=on)).plan
        if plan.expected_s != 0 or plan.evict:
            await announce_swap(client, plan, await client.state(), ask=not yes)
        done = await client.replay(request=request, on=on, begin=True)
    if as_json:
        output.print_json(done)
    else:
        _print_replay(done)
    if done.answer is None or done.answer.state is not RequestState.DONE:
        raise typer.Exit(1)


def _print_replay(done: Replay) -> None:
    from sparkdash.domain.phrases import caution_text, figure_rows, match_text

    before = done.original.profile if done.original else "captured"
    output.print_table(("", before, f"{done.profile} (replay)"), figure_rows(done), "<>>")
    output.print_text(match_text(done))
    if caution := caution_text(done):
        output.print_note(caution)


def _request_row(row: Request, world: Snapshot) -> tuple[str, ...]:
    from sparkdash.cli.status_page import request_figures, request_state

    state = row.error or request_state(row, world, timed=False)
    lived = age((row.finished_at or world.at) - row.started_at)
    return (row.id, row.client, row.profile, state, lived, *request_figures(row, world))


LABEL = 16


def why(
    profile: ProfileName,
    slow: Annotated[bool, typer.Option("--slow", help="Tell where its last start spent its time.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tell whether PROFILE fits now, and who would leave for it.

    Shows its need by term, the available memory, who would leave and why, and whether the memory guard permits the
    load. If it does not fit: who else holds memory, and the command that frees it. Nothing is started or stopped.

    With --slow: the stages of its last start, and for the two longest the change that would shorten them, by how much,
    and how that is known: from other starts of this box, else from published figures.

    With --json: the plan, as `use --json` has it under "plan"; its last starts are in "starts".

    \b
    Examples:
      sparkdash why gpt-oss-120b
      sparkdash why gpt-oss-120b --slow
      sparkdash why qwen3-coder-30b-nvfp4/eagle3 --json
    """
    from sparkdash.client.client import Client

    with Client() as client:
        plan = client.plan(name=profile)
        world = client.state()
        known = client.profile(name=profile) if slow and not as_json else None
        others = [] if as_json or slow or plan.fits or not plan.needs_bytes else _others(client)
    columns = shutil.get_terminal_size().columns
    if as_json:
        output.print_json(plan)
    elif known is not None:
        output.print_text("\n".join(slow_lines(plan, known, columns)))
    else:
        output.print_text(
            "\n".join([*why_lines(plan, world, columns, others), *stuck_lines(plan.profile, world, columns)])
        )


def _others(client: Client) -> list[str]:
    """Describe the largest foreign holders of memory; empty when the daemon does not report them, as in the demo."""
    from sparkdash.cli.memory import largest_holders

    try:
        return list(largest_holders(client.memory()))
    except SparkdashError:
        return []


def why_lines(plan: Plan, world: Snapshot, columns: int, others: Sequence[str] = ()) -> Iterator[str]:
    from sparkdash.cli.profiles.page import need_lines, wrap_beside_label
    from sparkdash.domain.phrases import plan_facts

    yield plan.profile
    if plan.held:
        yield from wrap_beside_label(_why_row("held back", ""), plan.held, columns)
    yield from need_lines(plan.need, columns)
    yield from (_why_row(*fact) for fact in plan_facts(plan, world))
    if plan.requests_wait:
        yield from wrap_beside_label(_why_row("requests wait", ""), plan.requests_wait, columns)
    yield plan.verdict
    for index, one in enumerate(others):
        yield from wrap_beside_label(_why_row("" if index else "others hold", ""), one, columns)


def slow_lines(plan: Plan, profile: Profile, columns: int) -> Iterator[str]:
    from sparkdash.cli.profiles.page import wrap_beside_label
    from sparkdash.domain.phrases import start_facts
    from sparkdash.engines.registry import adapter_of
    from sparkdash.engines.start_stages import largest_costs

    if not plan.starts:
        yield f"No start of {plan.profile} is recorded. `sparkdash use {plan.profile}` starts it."
        return
    newest = plan.starts[0]
    whole = sum(step.s for step in newest.stages)
    yield f"{plan.profile}: its last start took {duration(whole)}"
    for step in newest.stages:
        yield _why_row(step.name, f"{step.s:7.1f} s  {percent(step.s / whole if whole else None):>5}")
    for index, fact in enumerate(start_facts(newest)):
        yield _why_row("" if index else "seen", fact)
    for cost in largest_costs(adapter_of(profile).levers(), profile, plan.starts):
        saving = f" About {duration(cost.saves_s)} less." if cost.change and cost.saves_s is not None else ""
        source = f" ({cost.source})" if cost.source else ""
        unknown = "It took less before" if cost.source else "No change is known that shortens it."
        text = f"{duration(cost.s)}. {cost.change or unknown}{saving}{source}"
        yield from wrap_beside_label(_why_row(cost.stage, ""), text, columns)


def stuck_lines(profile: str, world: Snapshot, columns: int) -> Iterator[str]:
    from sparkdash.cli.profiles.page import wrap_beside_label
    from sparkdash.domain.phrases import is_told, repair_text, state_text, step_text

    for label, text in failure_rows(world, profile):
        yield from wrap_beside_label(_why_row(label, ""), text, columns)
    engine = world.engines.get(profile)
    if engine is not None and engine.liveness is not None and is_told(engine.liveness):
        words = f"{state_text(engine.liveness, world.at)}: {engine.liveness.why}"
        yield from wrap_beside_label(_why_row("its engine", ""), words, columns)
        if step := step_text(engine.liveness, world.at):
            yield _why_row("", step)
    if time := world.repairs.by_profile.get(profile):
        yield _why_row("was stuck", repair_text(time))


def _why_row(label: str, text: str) -> str:
    return f"  {label:<{LABEL}}{text}"
