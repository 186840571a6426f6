"""Table of the measured runs, for `bench list` and for `bench show` without a run.

Owns: its columns. Must not know: where runs are stored.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sparkdash.cli.output import RIGHT, format_table, print_note, print_text, terminal_width
from sparkdash.errors import AdmissionError

if TYPE_CHECKING:
    from sparkdash.bench.results import Results


def print_runs(found: Iterable[Results]) -> None:
    """Print the runs as a table; on a terminal, lines are cut at its width."""
    from sparkdash.cli.bench.progress import uncounted_text

    listed = list(found)
    rows = [_row(one) for one in listed]
    if not rows:
        print_text("No run yet. `sparkdash bench PROFILE --suite smoke` takes about a minute.")
        return
    lines = format_table(("RUN", "MODE", "CELLS", "VOID", "ARMS"), rows, f"<<{RIGHT}{RIGHT}<")
    room = terminal_width() if sys.stdout.isatty() else max(map(len, lines))
    print_text("\n".join(line if len(line) <= room else f"{line[: room - 1]}…" for line in lines))
    for one in listed:
        if said := uncounted_text(one):
            print_note(f"{one.run.id}: {said}.")


def readable_runs(places: Iterable[Path]) -> Iterator[Path]:
    """Yield the runs that this version can read; print a note for each other run."""
    from sparkdash.bench import run_folder

    for place in places:
        try:
            run_folder.read_run(place)
        except AdmissionError as error:
            print_note(error.text())
        else:
            yield place


def _row(found: Results) -> tuple[str, ...]:
    run = found.run
    whole = sum(len(run.planned(index)) for index in range(len(run.order)))
    arms = ("SIM " if run.simulated else "") + ", ".join(arm.name for arm in run.arms)
    void = sum(one.void is not None for one in found.samples)
    return run.id, run.mode, f"{whole - len(found.gaps())}/{whole}", str(void), arms
