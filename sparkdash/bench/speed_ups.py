"""Measured speed-ups of this user's profiles, read from the runs on disk.

Owns: which runs are read. Must not know: how a speed-up is judged.
Rule: the newest run that may claim something about a profile counts. A process of its own reads
(`python -m sparkdash.bench.speed_ups`), as for reports.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path

from pydantic import TypeAdapter

from sparkdash.bench import run_folder
from sparkdash.bench.judge.speed_up import speed_ups
from sparkdash.bench.run import Mode
from sparkdash.domain.profile import SpeedUp
from sparkdash.errors import AdmissionError

READ_RUNS = 40
"""Newest runs that are read: a run of many cells takes a tenth of a second."""
LISTED = TypeAdapter(tuple[SpeedUp, ...])
SIMULATED = "--simulated"


def read_speed_ups(*, simulated: bool, root: Path | None = None) -> tuple[SpeedUp, ...]:
    """Return one speed-up for each profile that has one; those of simulated engines apart from real ones."""
    found: dict[str, SpeedUp] = {}
    for place in islice(run_folder.list_runs(root), READ_RUNS):
        with suppress(AdmissionError):  # a run that cannot be read tells nothing
            run = run_folder.read_run(place)
            if run.simulated is simulated and run.mode is not Mode.SCREEN and len(run.arms) > 1:
                for one in speed_ups(run_folder.read_results(place)):
                    found.setdefault(one.profile, one)
    return tuple(found.values())


def main() -> None:
    """Print the speed-ups as JSON."""
    sys.stdout.write(LISTED.dump_json(read_speed_ups(simulated=SIMULATED in sys.argv[1:])).decode())


if __name__ == "__main__":
    main()
