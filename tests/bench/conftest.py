"""Rehearsed results: a run whose every figure is given, labelled simulated. Nothing in them was measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sparkdash.bench import run_folder
from sparkdash.bench.plan.math_questions import question
from sparkdash.bench.results import CellRecord, LaunchRecord, Provenance, RequestSample, Results, gather
from sparkdash.bench.run import Arm, CellKey, Host, Kind, LaunchSlot, Mode, PlannedCell, Run
from sparkdash.bench.run_folder import Journal
from sparkdash.cli.main import app
from tests.shared.alternating import alternating

AT = datetime(2026, 11, 21, 20, 0, tzinfo=UTC)
MATH = CellKey(suite="seeds", context=0, output=512, kind=Kind.MATH)
SEED = 42


def key(context: int, output: int, **changes: Any) -> CellKey:
    return CellKey(suite="seeds", context=context, output=output, **changes)


def run_of(
    arms: Sequence[Arm], order: Sequence[LaunchSlot], cells: Sequence[PlannedCell], mode: Mode, **changes: Any
) -> Run:
    """A simulated run of the suite seeds; its first arm is the baseline."""
    given = {
        "id": "20261121-200000-seeds", "suite": "seeds", "suite_version": "1", "suite_hash": "5eed" * 16,
        "arms": tuple(arms), "baseline": arms[0].name, "mode": mode, "seed": SEED, "created_at": AT,
        "order": tuple(order), "cells": tuple(cells), "simulated": True,
    }  # fmt: skip
    return Run.model_validate(given | changes)


def a_sample(cell: CellKey, arm: str, launch: int, rep: int, prompt_id: str, **told: Any) -> RequestSample:
    """A request that was sent at 0."""
    place = {"cell": cell, "arm": arm, "launch": launch, "rep": rep, "prompt_id": prompt_id, "t0_ns": 0}
    return RequestSample.model_validate(place | told)


def evening(number: int, name: str = "seeds", **changes: Any) -> dict[str, Any]:
    """When and under which id a run of that evening was recorded, for `rehearse` and `recorded`."""
    at = AT + timedelta(days=number)
    return {"at": at, "changes": {"id": f"{at:%Y%m%d-%H%M%S}-{name}", **changes}}


@dataclass
class Rehearsal:
    """Figures that each arm should show: end-to-end rate by cell, right answers of 50, speculation, launches."""

    arms: Sequence[Arm]
    rates: Mapping[str, Mapping[CellKey, float]]
    maths: Mapping[str, int] = field(default_factory=dict)
    provenance: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    drafts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Accepted tokens by position, of 100 verify steps."""
    hits: int | None = None
    """Prompt tokens of 100 that the prefix cache had."""
    mode: Mode = Mode.STANDARD
    reps: int = 4
    voids: Mapping[tuple[str, CellKey], str] = field(default_factory=dict)
    wobble: float = 0.0
    """Relative, alternating from request to request."""
    visible: float = 1.0
    """Share of tokens outside the reasoning."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    at: datetime = AT
    """When everything was measured."""

    def results(self) -> Results:
        return gather(*self.records())

    def write(self, root: Path) -> Path:
        """The run's folder, as the runner leaves it."""
        run, records = self.records()
        place = run_folder.create_run_folder(run, root)
        with Journal(place) as journal:
            for record in records:
                journal.append(record)
        return place

    def records(self) -> tuple[Run, list[LaunchRecord | RequestSample | CellRecord]]:
        able = [arm.name for arm in self.arms if arm.impossible is None]
        keys = list(dict.fromkeys(one for rates in self.rates.values() for one in rates))
        keys += [one for _, one in self.voids if one not in keys]
        order = alternating(able, self.mode)
        cells = [PlannedCell(key=one, reps=self.reps) for one in keys]
        if self.maths:
            cells.append(PlannedCell(key=MATH, reps=50, launches=tuple(range(len(able)))))
        told = {"created_at": self.at, "host": Host(name="rehearsal"), **self.changes}
        run = run_of(self.arms, order, cells, self.mode, **told)
        records: list[LaunchRecord | RequestSample | CellRecord] = []
        for index, slot in enumerate(order):
            records += self._launch(index, slot, cells)
        return run, records

    def _launch(
        self, index: int, slot: LaunchSlot, cells: Sequence[PlannedCell]
    ) -> list[LaunchRecord | RequestSample | CellRecord]:
        told = {"engine": "sim", "fingerprint": "f00d", "startup_s": 60.0, **self.provenance.get(slot.arm, {})}
        found: list[LaunchRecord | RequestSample | CellRecord] = [
            LaunchRecord(
                arm=slot.arm,
                index=index,
                block=slot.block,
                started_at=self.at,
                provenance=Provenance.model_validate(told),
            )
        ]
        for cell in cells:
            if cell.launches is not None and index not in cell.launches:
                continue
            samples = self._samples(index, slot.arm, cell)
            void = self.voids.get((slot.arm, cell.key))
            if not samples and void is None:
                continue
            found += samples
            at = self.drafts.get(slot.arm, ())
            drafted = {"drafts": 100, "accepted_tokens": sum(at), "accepted_at": at} if at else {}
            counted = {"prefix_hits": self.hits, "prefix_queries": 100, "void": void, **drafted}
            when = {"started_at": self.at, "ended_at": self.at + timedelta(seconds=10)}
            found.append(CellRecord(key=cell.key, arm=slot.arm, launch=index, **when, **counted))
        return found

    def _samples(self, index: int, arm: str, cell: PlannedCell) -> list[RequestSample]:
        if cell.key.kind is Kind.MATH:
            right = self.maths.get(arm)
            return [] if right is None else [self._answer(index, arm, number, right) for number in range(cell.reps)]
        rate = self.rates.get(arm, {}).get(cell.key)
        if rate is None:
            return []
        return [
            self._speed(
                index, arm, cell.key, rep, stream, rate * (1 + self.wobble * (-1) ** (rep + index)), self.visible
            )
            for rep in range(cell.reps)
            for stream in range(cell.key.concurrency)
        ]

    @staticmethod
    def _speed(
        index: int, arm: str, cell: CellKey, rep: int, stream: int, rate: float, visible: float
    ) -> RequestSample:
        """n / e2e is the rate; a tenth of the time passes before the first token; what is hidden comes first."""
        whole = int(cell.output / rate * 1e9)
        shown = whole // 10 + int(0.9 * whole * (1 - visible))
        moments = {"token_ns": whole // 10, "visible_ns": shown, "last_ns": whole, "itl_p99_ns": whole // cell.output}
        counts = {"n": cell.output, "visible": int(cell.output * visible), "prompt_tokens": cell.context + 20}
        told = {"stream": stream, "cached_tokens": 0, "finish_reason": "length", **moments, **counts}
        return a_sample(cell, arm, index, rep, f"{cell.context}.{cell.output}.{rep}.{stream}", **told)

    @staticmethod
    def _answer(index: int, arm: str, number: int, right: int) -> RequestSample:
        answer = question(SEED, number).answer + (0 if number < right else 1)
        told = {"token_ns": 1, "last_ns": 10**9, "n": 20, "finish_reason": "stop", "text": f"ANSWER: {answer}"}
        return a_sample(MATH, arm, index, number, f"math2 {number}", **told)


def sparkdash(*argv: str, code: int = 0) -> str:
    """Output of the command, which ends with this code."""
    done = CliRunner().invoke(app, list(argv), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def rehearse() -> Callable[..., Results]:
    return lambda **given: Rehearsal(**given).results()


@pytest.fixture
def recorded() -> Callable[..., Path]:
    """The same as a folder: `recorded(root, arms=…, rates=…)`."""
    return lambda root, **given: Rehearsal(**given).write(root)
