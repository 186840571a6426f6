"""RecentPast: what dashboards show of the time before the daemon's start.

Owns: how much of it there is, and how a stored swap or request becomes a value again. Must not know threads.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from sparkdash.domain.engine import Failure
from sparkdash.domain.event import Level, Notice
from sparkdash.domain.lease import Request, RequestState
from sparkdash.domain.profile_figures import FIGURE_WINDOW, Figures
from sparkdash.domain.state import RECENT_NOTICES, RECENT_REQUESTS, RECENT_SWAPS
from sparkdash.domain.swap import Step, Swap, SwapCause, SwapOutcome, SwapPhase
from sparkdash.store.history.past_requests import REQUEST_COLUMNS, parse_request

NEWEST = 5_000
"""Requests among which the last ones of each profile are looked for."""
_SWAPS = (
    "SELECT record, id, at, profile, cause, outcome, stage_s, failure, steps, nodes FROM swaps"
    " ORDER BY rowid DESC LIMIT ?"
)


class RecentPast(NamedTuple):
    """Ended requests, swaps and notices, newest first, and the speeds of each profile."""

    requests: tuple[Request, ...] = ()
    swaps: tuple[Swap, ...] = ()
    notices: tuple[Notice, ...] = ()
    figures: dict[str, Figures] = {}


def read_recent_past(database: sqlite3.Connection) -> RecentPast:
    """Read the newest records. Rows that cannot be read are left out."""
    requests = database.execute(
        f"SELECT {REQUEST_COLUMNS} FROM requests ORDER BY rowid DESC LIMIT ?",  # noqa: S608 - constants
        (RECENT_REQUESTS,),
    )
    notices = database.execute(
        "SELECT at, level, code, text, profile FROM notices ORDER BY rowid DESC LIMIT ?", (RECENT_NOTICES,)
    )
    return RecentPast(
        requests=tuple(_parsed_requests(requests)),
        swaps=tuple(_parsed_swaps(database.execute(_SWAPS, (RECENT_SWAPS,)))),
        notices=tuple(
            Notice(at=at, level=Level(level), code=code, text=text, profile=profile)
            for at, level, code, text, profile in notices
        ),
        figures=_figures(database),
    )


def _parsed_requests(rows: Iterable[tuple[Any, ...]]) -> Iterable[Request]:
    for row in rows:
        with suppress(ValueError):
            yield parse_request(row)


def _parsed_swaps(rows: Iterable[tuple[Any, ...]]) -> Iterable[Swap]:
    for record, *columns in rows:
        with suppress(ValueError):  # an outcome or a field of another version
            yield Swap.model_validate_json(record) if record else _swap_of(tuple(columns))


def _swap_of(columns: tuple[Any, ...]) -> Swap:
    """Make a swap of the columns that older versions wrote; who left is not known of it."""
    id_, at, profile, cause, outcome, stage_s, failure, steps, nodes = columns
    stages = {SwapPhase(name): seconds for name, seconds in json.loads(stage_s).items()}
    ended = at + sum(stages.values())
    return Swap(
        id=id_,
        target=profile or None,
        evict=(),
        nodes=tuple(nodes.split(",")) if nodes else (),
        cause=SwapCause(cause),
        phase=max(stages, key=list(SwapPhase).index, default=SwapPhase.STOP),
        started_at=at,
        phase_at=ended,
        stage_s=stages,
        steps=tuple(Step(name=name, s=seconds) for name, seconds in json.loads(steps or "[]")),
        ended_at=ended,
        outcome=SwapOutcome.DONE if outcome == "resumed" else SwapOutcome(outcome),
        failure=Failure(code=failure, message=f"The swap failed: {failure}.") if failure else None,
    )


def _figures(database: sqlite3.Connection) -> dict[str, Figures]:
    """Read the last speeds of each profile, and its best over all requests that are kept."""
    rates: dict[str, list[tuple[float | None, float | None, float | None]]] = {}
    newest = database.execute(
        "SELECT profile, decode_tok_s, ttft_s, finished_at FROM requests"
        " WHERE rowid > (SELECT max(rowid) FROM requests) - ? AND state = ? ORDER BY rowid",
        (NEWEST, RequestState.DONE.value),
    )
    for profile, rate, ttft, at in newest:
        rates.setdefault(profile, []).append((rate, ttft, at))
    bests = database.execute(
        "SELECT profile, count(decode_tok_s), max(decode_tok_s) FROM requests WHERE state = ? GROUP BY profile",
        (RequestState.DONE.value,),
    )
    loads = dict(database.execute("SELECT profile, stage_s FROM swaps WHERE outcome = 'done' ORDER BY rowid"))
    return {
        profile: Figures(
            requests=number,
            rates=tuple(rate for rate, _, _ in rates.get(profile, ()) if rate is not None)[-FIGURE_WINDOW:],
            ttfts=tuple(ttft for _, ttft, _ in rates.get(profile, ()) if ttft is not None)[-FIGURE_WINDOW:],
            best=best,
            load_s=_load_s(loads.get(profile)),
            at=max((at for _, _, at in rates.get(profile, ()) if at is not None), default=None),
        )
        for profile, number, best in bests
    }


def _load_s(stages: str | None) -> float | None:
    """Seconds of the container's start, the load and the warm-up."""
    if stages is None:
        return None
    found: dict[str, float] = json.loads(stages)
    parts = [found[phase.value] for phase in (SwapPhase.CREATE, SwapPhase.LOAD, SwapPhase.WARM) if phase.value in found]
    return sum(parts) if parts else None
