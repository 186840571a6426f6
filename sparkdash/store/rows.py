"""Conversion of values to rows and back: the statements and the order of the columns. Pure."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from sparkdash.domain.engine import Failure, Incident, IncidentEnd, Parked, TakenStep
from sparkdash.domain.event import Notice
from sparkdash.domain.memory import GuardKill, Measure, Weighing
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.swap import Step, Swap, SwapOutcome

Row = tuple[object, ...]
SwapTimes = tuple[str, str, float, tuple[Step, ...], str | None, str | None]
"""Fingerprint, kin (profiles of the same model and engine), seconds, steps, image, and the start as JSON, of a swap."""
WeighedLoad = tuple[str, Weighing]
"""Fingerprint of a load, and the memory it took."""

REQUEST_COLUMNS = (
    "id, at, profile, client, route, state, status, finished_at, ttft_s, prompt_tokens, cached_tokens,"
    " completion_tokens, decode_tok_s, finish_reason, error, reasoning_tokens, node, key, granted_at, stream,"
    " energy_wh, completion_estimate, session"
)
_NAMES = [{"at": "started_at"}.get(name, name) for name in REQUEST_COLUMNS.replace(",", " ").split()]
PUT_SWAP = "INSERT OR REPLACE INTO swaps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_MARKS = ", ".join("?" for _ in REQUEST_COLUMNS.split(","))
PUT_REQUEST = f"INSERT OR REPLACE INTO requests VALUES ({_MARKS})"  # noqa: S608 - constant
PUT_LOAD = (
    "INSERT INTO loads VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET at = excluded.at,"
    " measure = excluded.measure, steady_bytes = excluded.steady_bytes, peak_bytes = excluded.peak_bytes,"
    " spoilt = excluded.spoilt"
)
"""Updates in place: the last loads go by the order of writing, as the clock may have been set."""
PUT_KILL = "INSERT INTO kills VALUES (?, ?, ?, ?, ?, ?)"
PUT_INCIDENT = (
    "INSERT INTO incidents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
    " steps = excluded.steps, why = excluded.why, ended_at = excluded.ended_at, how = excluded.how,"
    " note = excluded.note, evidence = excluded.evidence"
)
GET_INCIDENTS = (
    "SELECT id, began, named_at, profile, fingerprint, why, steps, ended_at, how, note, evidence FROM incidents"
    " ORDER BY rowid"
)
PUT_NOTICE = "INSERT INTO notices VALUES (?, ?, ?, ?, ?)"
PUT_PARKED = "INSERT OR REPLACE INTO parked VALUES (?, ?, ?, ?, ?)"
END_PARKED = "DELETE FROM parked WHERE profile = ?"
GET_PARKED = "SELECT profile, since, fingerprint, failures, failure FROM parked"
PUT_ATTACHED = "INSERT OR REPLACE INTO attached VALUES (?, ?)"
END_ATTACHED = "DELETE FROM attached WHERE profile = ?"
GET_ATTACHED = "SELECT profile, fingerprint FROM attached ORDER BY rowid"
GET_SWAPS = (
    "SELECT fingerprint, kin, took_s, steps, json_extract(record, '$.start.image_id'), json_extract(record, '$.start')"
    " FROM swaps"
    " WHERE outcome = 'done' AND profile <> '' ORDER BY rowid"
)
GET_LOADS = (
    "SELECT id, at, fingerprint, measure, steady_bytes, peak_bytes FROM loads"
    " WHERE spoilt IS NULL AND steady_bytes IS NOT NULL ORDER BY rowid"
)


def swap_row(swap: Swap, fingerprint: str, kin: str, took_s: float, *, whole: bool) -> Row:
    """Make a row for PUT_SWAP. A done swap that is not `whole` gets the outcome "resumed"."""
    stages = json.dumps({phase.value: round(seconds, 3) for phase, seconds in swap.stage_s.items()})
    steps = json.dumps([[step.name, round(step.s, 3)] for step in swap.steps])
    outcome = swap.outcome.value if swap.outcome else ""
    if swap.outcome is SwapOutcome.DONE and not whole:
        outcome = "resumed"
    failure = swap.failure.code if swap.failure else None
    return (
        swap.id, swap.started_at, swap.target or "", fingerprint, swap.cause.value, outcome, took_s, stages, failure,
        kin, steps, ",".join(swap.nodes) or None, swap.model_dump_json(exclude_defaults=True),
    )  # fmt: skip


def parse_swap_times(row: Sequence[Any]) -> SwapTimes:
    fingerprint, kin, took_s, steps, image_id, start = row
    named = tuple(Step(name=name, s=s) for name, s in json.loads(steps or "[]"))
    return fingerprint, kin or "", took_s, named, image_id, start


def request_row(request: Request) -> Row:
    r = request
    return (
        r.id, r.started_at, r.profile, r.client, r.route, str(r.state), r.status, r.finished_at, r.ttft_s,
        r.prompt_tokens, r.cached_tokens, r.completion_tokens, r.decode_tok_s, r.finish_reason, r.error,
        r.reasoning_tokens, r.node, r.key, r.granted_at, r.stream, r.energy_wh, r.completion_estimate, r.session,
    )  # fmt: skip


def parse_request(row: tuple[Any, ...]) -> Request:
    """Make the request of a row with REQUEST_COLUMNS. Raises ValueError for a row that no daemon wrote."""
    found = dict(zip(_NAMES, row, strict=True))
    return Request(**(found | {"state": RequestState(found["state"]), "stream": bool(found["stream"])}))


@cache
def put_requests(number: int) -> str:
    row = PUT_REQUEST.partition("VALUES ")[2]
    return PUT_REQUEST + f", {row}" * (number - 1)


def notice_row(notice: Notice) -> Row:
    return (notice.at or 0.0, notice.level.value, notice.code, notice.text, notice.profile)


def kill_row(kill: GuardKill) -> Row:
    return (kill.at, kill.profile, kill.available, kill.pressure, kill.processes, kill.reason)


def incident_row(incident: Incident) -> Row:
    i = incident
    steps = json.dumps([[step.step.value, step.at] for step in i.steps])
    how = i.end.value if i.end else None
    return (i.id, i.began, i.named_at, i.profile, i.fingerprint, i.why, steps, i.ended_at, how, i.note, i.evidence)


def parse_incident(row: Sequence[Any]) -> Incident:
    id_, began, named_at, profile, fingerprint, why, steps, ended_at, how, note, evidence = row
    return Incident(
        id=id_,
        began=began,
        named_at=named_at,
        profile=profile,
        fingerprint=fingerprint,
        why=why,
        steps=tuple(TakenStep(step=step, at=at) for step, at in json.loads(steps)),
        ended_at=ended_at,
        end=IncidentEnd(how) if how else None,
        note=note,
        evidence=evidence,
    )


def parked_row(profile: str, parked: Parked) -> Row:
    return (profile, parked.since, parked.fingerprint, parked.failures, parked.failure.model_dump_json())


def parse_parked(row: Sequence[Any]) -> tuple[str, Parked]:
    profile, since, fingerprint, failures, failure = row
    why = Failure.model_validate_json(failure)
    return profile, Parked(since=since, fingerprint=fingerprint, failures=failures, failure=why)


def load_row(seen: Weighing, profile: str, fingerprint: str) -> Row:
    """Make a row for PUT_LOAD; two of its columns are no longer filled."""
    measure = seen.measure.value if seen.measure else None
    return (
        seen.id, seen.at, profile, fingerprint, measure, seen.steady_bytes, seen.peak_bytes, None, seen.spoilt, "[]",
    )  # fmt: skip


def parse_load(row: Sequence[Any]) -> WeighedLoad:
    id_, at, fingerprint, measure, steady, peak = row
    seen = Weighing(id=id_, at=at, measure=Measure(measure), steady_bytes=steady, peak_bytes=peak)
    return fingerprint, seen
