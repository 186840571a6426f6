"""`sparkdash release`: allow a parked profile to start again."""

from __future__ import annotations

from typing import Annotated

import typer

from sparkdash.cli.output.screen import print_json, print_text
from sparkdash.cli.parameters import AsJson, MaybeProfileName

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
    elif not wanted:
        lines = [f"{key}: {each.failure.message}" for key, each in world.parked.items()]
        print_text("\n".join(lines or [NOTHING]))
    else:
        print_text(f"Released: {', '.join(released)}." if released else f"{name} was not parked." if name else NOTHING)
