"""`sparkdash release`: allow a parked profile to start again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output.screen import print_json, print_text
from sparkdash.cli.parameters import AsJson, MaybeProfileName

if TYPE_CHECKING:
    from sparkdash.domain.state import Snapshot

NOTHING = "No profile is parked."


def release(
    profile: MaybeProfileName = None,
    everything: Annotated[bool, typer.Option("--all", help="Release every parked profile.")] = False,
    as_json: AsJson = False,
) -> None:
    """Allow a parked profile to start again.

    Without PROFILE: list the parked profiles and the reasons. A profile that fails twice within ten minutes, or twice
    for the same reason, is parked: its requests are refused with the reason, and no engine leaves for it. Fix the
    cause, then release the profile. An edit of its launch releases it too; `sparkdash use` tries it once.

    \b
    Examples:
      sparkdash release
      sparkdash release gpt-oss-120b
      sparkdash release --all
    """
    from sparkdash.client.blocking import Client

    if profile is not None and everything:
        raise typer.BadParameter("give a PROFILE, or --all, not both", param_hint="PROFILE")
    with Client() as client:
        world = client.state()
        name = next((one.name for one in world.profiles if profile in one.serves), profile)
        wanted = everything or name is not None
        released = [each for each in world.parked if everything or each == name]
        if wanted:
            client.release(profile=name)
    if as_json:
        print_json({"parked": world.parked, "released": released})
    else:
        print_text(_released_text(released, name) if wanted else _parked_text(world))


def _parked_text(world: Snapshot) -> str:
    lines = [f"{name}: {parked.failure.message}" for name, parked in world.parked.items()]
    return "\n".join(lines or [NOTHING])


def _released_text(released: list[str], name: str | None) -> str:
    if released:
        return f"Released: {', '.join(released)}."
    return f"{name} was not parked." if name else NOTHING
