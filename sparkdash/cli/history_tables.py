"""Periods as people type them, and the tables of the recorded past."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from sparkdash.api.requests import UsageQuery
from sparkdash.cli.output import print_table, print_text
from sparkdash.client.client import Client
from sparkdash.domain.engine import Incident, IncidentList
from sparkdash.domain.history import MarkList, UsageReport, UsageTotals
from sparkdash.domain.phrases import about, end_text, output_of_request, repair_text
from sparkdash.domain.request import Request
from sparkdash.errors import AdmissionError
from sparkdash.units import DASH, age, duration, number, percent, tokens

_AGO = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class AskedPeriod(NamedTuple):
    """A period in Unix seconds, and the terminal's distance from UTC at its end."""

    since: float
    until: float
    offset_s: int


def parse_period(since: str, until: str, now: float) -> AskedPeriod:
    begin, end = parse_moment(since, now), parse_moment(until, now)
    if begin >= end:
        raise AdmissionError(
            f"The period from {since!r} to {until!r} is empty.",
            code="period_invalid",
            hint="--since comes before --until: `--since 7d --until 1d`.",
        )
    offset = datetime.fromtimestamp(end).astimezone().utcoffset()
    return AskedPeriod(begin, end, int(offset.total_seconds()) if offset else 0)


def parse_moment(text: str, now: float) -> float:
    """Parse one end: a time ago, a date, or a date with a time. Raises AdmissionError."""
    if text == "now":
        return now
    if ago := _AGO.fullmatch(text):
        return max(now - float(ago[1]) * _UNITS[ago[2]], 0.0)
    try:
        return max(datetime.fromisoformat(text).timestamp(), 0.0)
    except (ValueError, OverflowError, OSError):
        raise AdmissionError(
            f"{text!r} is no time.",
            code="period_invalid",
            hint="Write 90m, 12h, 7d or 4w (ago), 2026-11-20, or 2026-11-20T14:00.",
        ) from None


WITHIN = "Quantiles are within 1 %."


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """Answer as a document and as a table."""

    document: object
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    align: str
    nothing: str
    least: tuple[str, ...] = ()
    foot: str = ""

    def print(self) -> None:
        if not self.rows:
            return print_text(self.nothing)
        print_table(self.head, self.rows, self.align, self.least)
        return print_text(self.foot) if self.foot else None


SHOWN_REQUESTS = 40
"""Requests of a table; --json gives all of the period."""
PAGE = 1_000


def ask_history(
    daemon: Client, by: str, period: AskedPeriod, *, profile: str | None, client: str | None, whole: bool
) -> HistoryTable:
    """Ask for requests added up `by` a key, or for a list. `whole`: all of the period."""
    since, until = period.since, period.until
    match by:
        case "request":
            return _requests(daemon, period, profile, client, whole=whole)
        case "event":
            return event_table(daemon.history_marks(since=since, until=until, profile=profile))
        case "incident":
            kept = daemon.incidents(profile=profile)
            within = tuple(one for one in kept.incidents if since <= one.named_at <= until)
            return incident_table(kept.replace(incidents=within), until)
    key = UsageQuery.model_validate({"by": by}).by
    return usage_table(
        daemon.history_usage(by=key, since=since, until=until, profile=profile, client=client, offset_s=period.offset_s)
    )


def _requests(
    daemon: Client, period: AskedPeriod, profile: str | None, client: str | None, *, whole: bool
) -> HistoryTable:
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


def usage_table(report: UsageReport) -> HistoryTable:
    if report.by == "session":
        return _session_table(report)
    rows = [_usage_row(row) for row in report.rows]
    if len(rows) > 1:
        rows.append(_usage_row(report.total))
    head = (report.by, "requests", "failed", "prompt", "cached", "out", "think", "ttft p50", "p95", "tok/s p50",
            "waited", "wait p95", "Wh")  # fmt: skip
    return HistoryTable(
        document=report,
        head=head,
        rows=rows,
        align="<" + ">" * (len(head) - 1),
        least=("Wh", "think", "wait p95", "waited", "cached", "p95", "prompt", "failed"),
        nothing="No request ended in this period.",
        foot=_energy(report) + WITHIN,
    )


def _session_table(report: UsageReport) -> HistoryTable:
    return HistoryTable(
        document=report,
        head=("session", "began", "took", "requests", "failed", "prompt", "cached", "out", "think", "Wh"),
        rows=[_session_row(row) for row in report.rows],
        align="<<>>>>>>>>",
        least=("think", "cached", "failed", "began"),
        nothing="No request of this period named its session.",
    )


def _session_row(row: UsageTotals) -> tuple[str, ...]:
    group, requests, errors, prompt, cached, out, think, *_, energy = _usage_row(row)
    took = row.end - row.start if row.end is not None and row.start is not None else None
    began = DASH if row.start is None else _clock(row.start)
    return (group, began, duration(took), requests, errors, prompt, cached, out, think, energy)


def _energy(report: UsageReport) -> str:
    if report.busy_wh is None or report.idle_wh is None:
        return ""
    return f"Energy: {report.busy_wh:.1f} Wh while requests ran, {report.idle_wh:.1f} Wh while none ran. "


def _usage_row(row: UsageTotals) -> tuple[str, ...]:
    return (
        row.group or "-",
        str(row.requests),
        str(row.errors),
        tokens(row.prompt_tokens),
        percent(row.cached_tokens / row.prompt_tokens if row.prompt_tokens else None),
        tokens(row.output_tokens),
        tokens(row.reasoning_tokens),
        duration(row.ttft_s.p50),
        duration(row.ttft_s.p95),
        number(row.decode_tok_s.p50, 1),
        str(row.waited),
        duration(row.wait_s.p95),
        number(row.energy_wh, 1),
    )


def request_table(requests: Sequence[Request], *, more: bool) -> HistoryTable:
    return HistoryTable(
        document=requests,
        head=("ended", "client", "profile", "end", "wait", "ttft", "took", "prompt", "cached", "out", "tok/s"),
        rows=[_request_row(one) for one in requests],
        align="<<<<>>>>>>>",
        least=("cached", "prompt", "wait", "client", "took"),
        nothing="No request ended in this period.",
        foot="There are more: `--json` lists all." if more else "",
    )


def _request_row(one: Request) -> tuple[str, ...]:
    wait = one.granted_at - one.started_at if one.granted_at is not None else None
    took = one.finished_at - one.started_at if one.finished_at is not None else None
    output, estimated = output_of_request(one)
    return (
        _clock(one.finished_at or one.started_at),
        one.client,
        one.profile,
        one.error or one.finish_reason or one.state.value,
        duration(wait),
        duration(one.ttft_s),
        duration(took),
        tokens(one.prompt_tokens),
        tokens(one.cached_tokens),
        about(tokens(output), estimated=estimated),
        number(one.decode_tok_s, 1),
    )


def event_table(found: MarkList) -> HistoryTable:
    return HistoryTable(
        document=found,
        head=("at", "what", "how", "text"),
        rows=[(_clock(mark.at), mark.kind.value, mark.code, mark.text) for mark in found.marks],
        align="<<<<",
        least=("how",),
        nothing="Nothing happened in this period.",
        foot="Older events of the period were left out: name a later --since or an earlier --until."
        if found.cut
        else "",
    )


def incident_table(found: IncidentList, now: float) -> HistoryTable:
    repairs = [f"{repair_text(found.repairs.every)}."] if found.repairs.every is not None else []
    several = found.repairs.by_profile if len(found.repairs.by_profile) > 1 else {}
    return HistoryTable(
        document=found,
        head=("when", "profile", "how it ended", "what was seen"),
        rows=[_incident_row(one, now) for one in found.incidents],
        align="<<<<",
        nothing="No engine was stuck in this period.",
        foot="\n".join([*repairs, *(f"  {name}: {repair_text(each)}" for name, each in several.items())]),
    )


def _incident_row(one: Incident, now: float) -> tuple[str, ...]:
    words = [f"{one.why}.", one.note, f"Evidence: {one.evidence}" if one.evidence else ""]
    return f"{age(max(0.0, now - one.named_at))} ago", one.profile, end_text(one, now), " ".join(filter(None, words))


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
