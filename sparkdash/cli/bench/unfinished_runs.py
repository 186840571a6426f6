"""Unfinished runs beside a measurement that begins: resumed if they ask the same, else named.

Owns: which earlier run is which. Must not know: how anything is measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from sparkdash.bench import run_folder
from sparkdash.bench.plan import run_plan
from sparkdash.bench.run import Run
from sparkdash.cli.bench import progress
from sparkdash.cli.output import print_note
from sparkdash.errors import AdmissionError


def run_to_resume(run: Run, *, fresh: bool) -> Path | None:
    """Return the folder of the newest unfinished run with the same question, and say so; None: begin a new one.

    Another unfinished run of the same arms and suite is named with the command that completes it.
    """
    left = list(_unfinished(run))
    same = next((place for place, other in left if run_plan.is_same_question(other, run)), None)
    if same is not None and not fresh:
        print_note(f"Resuming {same.name}, which was stopped. Use --fresh to start a new run.")
        return same
    if left:
        place, other = left[0]
        missing = len(run_folder.read_results(place).gaps())
        why = "" if fresh else f" It differs in {_differences(other, run)}, so this begins a new run."
        progress.print_wrapped(
            f"{place.name} measures the same profiles and is unfinished: {progress.cell_count(missing)} missing.{why} "
            f"Complete it: sparkdash bench resume {place.name}"
        )
    return None


def _unfinished(run: Run) -> Iterator[tuple[Path, Run]]:
    """Yield the unfinished runs of the same arms and suite, newest first."""
    for place in run_folder.list_runs():
        with contextlib.suppress(AdmissionError):
            other = run_folder.read_run(place)
            if other.ended_at is None and run_plan.is_same_comparison(other, run):
                yield place, other


def _differences(run: Run, other: Run) -> str:
    """Name what makes another question of two runs of the same arms and suite."""
    words = {
        "suite_hash": "the suite's content", "mode": "the mode", "seed": "the seed", "target": "the way",
        "reps": "the repetitions", "order": "the order of launches", "cells": "the cells",
    }  # fmt: skip
    found = [text for name, text in words.items() if getattr(run, name) != getattr(other, name)]
    return found[0] if found else "the arms"
