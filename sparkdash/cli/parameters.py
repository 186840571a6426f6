"""Arguments and options that several commands share, and the completion of profile names.

Rule: completion never prints, never raises, and returns within the time a user waits after Tab.
"""

from typing import Annotated

import typer

from sparkdash.units import natural


def complete_profile(incomplete: str) -> list[str]:
    try:
        names = _names()
    except Exception:  # noqa: BLE001 - a Tab that fails must stay silent, whatever the reason
        return []
    return sorted((name for name in names if name.startswith(incomplete)), key=natural)


def _names() -> list[str]:
    from sparkdash.client.client import Client
    from sparkdash.errors import DaemonError

    try:
        with Client() as client:
            return [profile.name for profile in client.profiles().profiles]
    except DaemonError:
        from sparkdash.cli.local import configured_catalog

        return list(configured_catalog().profiles)


ProfileName = Annotated[
    str, typer.Argument(metavar="PROFILE", help="A profile's name or alias.", autocompletion=complete_profile)
]
MaybeProfileName = Annotated[
    str | None, typer.Argument(metavar="PROFILE", help="A profile's name or alias.", autocompletion=complete_profile)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once; the change continues.")]
