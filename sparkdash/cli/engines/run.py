"""`sparkdash run`: bring a profile up, starting a daemon if needed, or print the engine's command."""

from __future__ import annotations

from typing import Annotated

import typer

from sparkdash.cli.output.screen import print_json, print_note, print_text
from sparkdash.cli.parameters import AsJson, ProfileName, Yes


def run(
    profile: ProfileName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the exact command and do nothing.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="With --dry-run: even if the profile cannot run.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Bring PROFILE up, and start a daemon if none runs.

    Waits until the engine answers. If no daemon runs, one starts in the background. With --dry-run: print the command
    that starts the engine, without a daemon or podman; of a profile for several nodes, each node's. For a profile that
    cannot run, print the reason, and the command only with --anyway.

    \b
    Examples:
      sparkdash run gpt-oss-120b
      sparkdash run gpt-oss-120b --dry-run
      sparkdash run gpt-oss-120b --dry-run --json | jq -r '.argv[]'
    """
    import asyncio

    if dry_run:
        return _print_command(profile, anyway=anyway, as_json=as_json)
    if anyway:
        raise typer.BadParameter(
            "use --anyway with --dry-run only: a profile that cannot run is never started.", param_hint="--anyway"
        )
    from sparkdash.cli.daemon.background import start_daemon_if_needed

    start_daemon_if_needed()
    return asyncio.run(_bring_up(profile, ask=not yes, as_json=as_json))


async def _bring_up(profile: str, *, ask: bool, as_json: bool) -> None:
    from sparkdash.cli.engines.use import switch_to
    from sparkdash.client.client import AsyncClient

    async with AsyncClient() as client:
        await switch_to(client, profile, wait=True, ask=ask, as_json=as_json)


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
