"""`sparkdash history`: what this box did, from the daemon's records."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sparkdash.cli.output import print_json, print_text, terminal_width
from sparkdash.cli.parameters import AsJson, complete_profile

if TYPE_CHECKING:
    from sparkdash.cli.history_tables import AskedPeriod, HistoryTable
    from sparkdash.client.client import Client
    from sparkdash.domain.request import Request

SHOWN_REQUESTS = 40
"""Requests of a table; --json and --csv give all of the period."""
SHOWN_POINTS = 24
GIVEN_POINTS = 1_000
PAGE = 1_000


class By(StrEnum):
    """Key by which the records are listed."""

    PROFILE = "profile"
    CLIENT = "client"
    KEY = "key"
    HOUR = "hour"
    DAY = "day"
    REQUEST = "request"
    EVENT = "event"
    INCIDENT = "incident"
    FIGURE = "figure"


def history(
    by: Annotated[
        By, typer.Option(help="Add requests up by this; or list requests, events, incidents, the recorded figures.")
    ] = By.PROFILE,
    since: Annotated[str, typer.Option(help="Beginning: 90m, 12h, 7d, or 2026-11-20 and 2026-11-20T14:00.")] = "1d",
    until: Annotated[str, typer.Option(help="End, in the same forms.")] = "now",
    profile: Annotated[str | None, typer.Option(help="Only this profile.", autocompletion=complete_profile)] = None,
    client: Annotated[str | None, typer.Option(help="Only this client, such as codex.")] = None,
    figure: Annotated[str | None, typer.Option(help="Show this figure over time; `--by figure` lists them.")] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV on stdout.")] = False,
) -> None:
    """Show what this box did: requests, tokens, speeds, events.

    Requests are added up by hour; quantiles are within 1 %. Figures are kept at 1 s
    for an hour, at 10 s for two days and at 5 minutes for two years. --json and
    --csv give everything of the period. An incident is a time in which an engine
    held requests and made no progress: how it ended, what was seen, and the folder
    with its evidence.

    \b
    Examples:
      sparkdash history
      sparkdash history --by day --since 30d
      sparkdash history --by request --since 2h --profile gpt-oss-120b
      sparkdash history --figure decode_tok_s --profile gpt-oss-120b --since 6h
      sparkdash history --by figure
      sparkdash history --by incident --since 4w
      sparkdash history --by request --since 30d --csv > requests.csv
    """
    import time

    from sparkdash.cli.history_tables import parse_period
    from sparkdash.client.client import Client

    period = parse_period(since, until, time.time())
    whole = as_json or as_csv
    with Client() as daemon:
        if figure is not None:
            found = _figure(daemon, figure, profile, period, GIVEN_POINTS if whole else SHOWN_POINTS)
        elif by is By.REQUEST:
            found = _requests(daemon, profile, client, period, whole=whole)
        elif by is By.EVENT:
            found = _events(daemon, profile, period)
        elif by is By.INCIDENT:
            found = _incidents(daemon, profile, period)
        elif by is By.FIGURE:
            found = _figures(daemon)
        else:
            found = _usage(daemon, by, profile, client, period)
    if as_json:
        print_json(found.document)
    elif as_csv:
        print_text(found.csv(), nl=False)
    else:
        print_text(found.text(terminal_width()))


def _usage(daemon: Client, by: By, profile: str | None, client: str | None, period: AskedPeriod) -> HistoryTable:
    from sparkdash.api.requests import UsageQuery
    from sparkdash.cli.history_tables import usage_table

    asked = UsageQuery.model_validate({"by": by.value})
    return usage_table(
        daemon.history_usage(
            by=asked.by,
            since=period.since,
            until=period.until,
            profile=profile,
            client=client,
            offset_s=period.offset_s,
        )
    )


def _figure(daemon: Client, figure: str, profile: str | None, period: AskedPeriod, points: int) -> HistoryTable:
    from sparkdash.cli.history_tables import series_table

    found = daemon.history_series(figure=figure, profile=profile, since=period.since, until=period.until, points=points)
    return series_table(found)


def _requests(
    daemon: Client, profile: str | None, client: str | None, period: AskedPeriod, *, whole: bool
) -> HistoryTable:
    from sparkdash.cli.history_tables import request_table

    found: list[Request] = []
    after: str | None = None
    while True:
        page = daemon.history_requests(
            since=period.since,
            until=period.until,
            profile=profile,
            client=client,
            limit=PAGE if whole else SHOWN_REQUESTS,
            after=after,
        )
        found += page.requests
        after = page.next
        if after is None or not whole:
            return request_table(found, more=after is not None)


def _events(daemon: Client, profile: str | None, period: AskedPeriod) -> HistoryTable:
    from sparkdash.cli.history_tables import event_table

    return event_table(daemon.history_marks(since=period.since, until=period.until, profile=profile))


def _incidents(daemon: Client, profile: str | None, period: AskedPeriod) -> HistoryTable:
    from sparkdash.cli.history_tables import incident_table

    kept = daemon.incidents(profile=profile)
    within = tuple(one for one in kept.incidents if period.since <= one.named_at <= period.until)
    return incident_table(kept.replace(incidents=within), period.until)


def _figures(daemon: Client) -> HistoryTable:
    from sparkdash.cli.history_tables import figure_table

    return figure_table(daemon.history_figures())
