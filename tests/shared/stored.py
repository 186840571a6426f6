"""Swaps, requests and files of older versions for the tests of the store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sparkdash.domain.engine import Failure
from sparkdash.domain.memory import Measure, Weighing
from sparkdash.domain.request import Request, RequestState
from sparkdash.domain.swap import Swap, SwapCause, SwapOutcome, SwapPhase
from sparkdash.units import GIB

VERSION_1 = """
CREATE TABLE swaps (
    id TEXT PRIMARY KEY, at REAL NOT NULL, profile TEXT NOT NULL, fingerprint TEXT NOT NULL, cause TEXT NOT NULL,
    outcome TEXT NOT NULL, took_s REAL NOT NULL, stage_s TEXT NOT NULL, failure TEXT
);
CREATE INDEX swaps_by_fingerprint ON swaps (fingerprint, at);
CREATE TABLE requests (
    id TEXT PRIMARY KEY, at REAL NOT NULL, profile TEXT NOT NULL, client TEXT NOT NULL, route TEXT NOT NULL,
    state TEXT NOT NULL, status INTEGER, finished_at REAL, ttft_s REAL, prompt_tokens INTEGER, cached_tokens INTEGER,
    completion_tokens INTEGER, decode_tok_s REAL, finish_reason TEXT, error TEXT
);
CREATE INDEX requests_by_time ON requests (at);
INSERT INTO swaps VALUES ('1', 1.0, 'a', 'f', 'request', 'done', 70.0, '{"load": 70.0}', NULL);
INSERT INTO requests (id, at, profile, client, route, state) VALUES ('r', 1.0, 'a', 'curl', '/v1/models', 'done');
PRAGMA user_version = 1;
"""
"""Database as the first release wrote it."""


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


def asked(id_: str) -> Request:
    return Request(id=id_, client="c", profile="a", route="/v1", state=RequestState.DONE, started_at=1.0)


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    database = sqlite3.connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def load(id_: str, held: float, **facts: object) -> Weighing:
    given = {"id": id_, "at": float(id_), "measure": Measure.PROCESSES, "steady_bytes": int(held * GIB)}
    return Weighing.model_validate({**given, "peak_bytes": int((held + 1) * GIB), **facts})
