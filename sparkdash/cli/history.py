"""`sparkdash history`: what this box did, from the daemon's records."""

import time
from enum import StrEnum
from typing import Annotated

import typer

from sparkdash.cli.output import print_json
from sparkdash.cli.parameters import AsJson, complete_profile


class By(StrEnum):
    """Key by which the records are listed."""

    PROFILE = "profile"
    CLIENT = "client"
    KEY = "key"
    SESSION = "session"
    HOUR = "hour"
    DAY = "day"
    REQUEST = "request"
    EVENT = "event"
    INCIDENT = "incident"


def history(
    by: Annotated[By, typer.Option(help="Add requests up by this; or list requests, events, incidents.")] = By.PROFILE,
    since: Annotated[str, typer.Option(help="Beginning: 90m, 12h, 7d, or 2026-11-20 and 2026-11-20T14:00.")] = "1d",
    until: Annotated[str, typer.Option(help="End, in the same forms.")] = "now",
    profile: Annotated[str | None, typer.Option(help="Only this profile.", autocompletion=complete_profile)] = None,
    client: Annotated[str | None, typer.Option(help="Only this client, such as codex.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what this box did: requests, tokens, speeds, events.

    Requests are added up by hour; quantiles are within 1 %. --json
    gives everything of the period. An incident is a time in which an engine
    held requests and made no progress: how it ended, what was seen, and the folder
    with its evidence. A session is named by the client: X-Session-ID, or what Claude
    Code, Codex and opencode send.

    \b
    Examples:
      sparkdash history
      sparkdash history --by day --since 30d
      sparkdash history --by request --since 2h --profile gpt-oss-120b
      sparkdash history --by incident --since 4w
      sparkdash history --by session --client claude-code
      sparkdash history --by request --since 30d --json > requests.json
    """
    from sparkdash.cli.history_tables import ask_history, parse_period
    from sparkdash.client.client import Client

    period = parse_period(since, until, time.time())
    with Client() as daemon:
        found = ask_history(daemon, by.value, period, profile=profile, client=client, whole=as_json)
    if as_json:
        print_json(found.document)
    else:
        found.print()
