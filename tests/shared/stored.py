"""Swaps, requests and files of older versions for the tests of the store."""

import sqlite3
from pathlib import Path

from sparkdash.domain.engine import Failure
from sparkdash.domain.memory import Measure, Weighing
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.swap import Swap, SwapCause, SwapOutcome, SwapPhase
from sparkdash.units import GIB


def swap(id_: str, load_s: float, *, drain_s: float = 0.0, outcome: SwapOutcome = SwapOutcome.DONE) -> Swap:
    return Swap(
        id=id_,
        target="a",
        evict=(),
        cause=SwapCause.REQUEST,
        phase=SwapPhase.WARM,
        started_at=float(id_),
        phase_at=2.0,
        ended_at=3.0,
        outcome=outcome,
        stage_s={SwapPhase.DRAIN: drain_s, SwapPhase.LOAD: load_s},
        failure=Failure(code="engine_crash", message="It died.") if outcome is SwapOutcome.FAILED else None,
    )


def asked(id_: str, **facts: object) -> Request:
    given: dict[str, object] = {
        "client": "c", "profile": "a", "route": "/v1", "state": RequestState.DONE, "started_at": 1.0,
    }  # fmt: skip
    return Request(id=id_, **(given | facts))  # type: ignore[arg-type]


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    database = sqlite3.connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def load(id_: str, held: float, **facts: object) -> Weighing:
    given = {"id": id_, "at": float(id_), "measure": Measure.PROCESSES, "steady_bytes": int(held * GIB)}
    return Weighing.model_validate({**given, "peak_bytes": int((held + 1) * GIB), **facts})
