"""Measured speed-ups of speculating profiles, read from the runs on disk (`python -m sparkdash.bench.speed_ups`)."""

from __future__ import annotations

import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path

from pydantic import TypeAdapter

from sparkdash.bench import run_folder
from sparkdash.bench.judge.judgement import overall
from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.results import Provenance, Results
from sparkdash.bench.run import Arm, Kind, Mode
from sparkdash.domain.profile import SpeedUp
from sparkdash.errors import AdmissionError

CLAIMED = frozenset((Conclusion.FASTER, Conclusion.SLOWER, Conclusion.NO_DIFFERENCE))


def speed_ups(results: Results) -> tuple[SpeedUp, ...]:
    """Return the speed-up of each speculating profile that a run compares with its plain one; cells of one request."""
    run = results.run
    launched = {one.arm: one.provenance for one in results.launches}
    alone = tuple(cell for cell in run.cells if cell.key.kind is Kind.SPEED and cell.key.concurrency == 1)
    if not alone:
        return ()
    base = run.arm(run.baseline)
    found = []
    for one in overall(results.replace(run=run.replace(cells=alone))):
        verdict, arm = one.verdict, run.arm(one.arm)
        order = _speculating_first(arm, base, launched)
        if order is None or verdict.delta is None or verdict.claim not in CLAIMED:
            continue
        fast, plain = order
        ratio = 1.0 + verdict.delta
        found.append(
            SpeedUp(
                profile=fast.profile,
                fingerprint=launched[fast.name].fingerprint,
                plain=plain.profile,
                ratio=ratio if fast is arm else 1.0 / ratio,
                cells=one.cells,
                run=run.id,
                measured_at=run.created_at.timestamp(),
                simulated=run.simulated,
            )
        )
    return tuple(found)


def _speculating_first(one: Arm, other: Arm, launched: dict[str, Provenance]) -> tuple[Arm, Arm] | None:
    """Return the speculating arm and the plain one; None where they are not such a pair of one model."""
    if one.parameters or other.parameters or one.name not in launched or other.name not in launched:
        return None
    mine, theirs = launched[one.name], launched[other.name]
    same = mine.model is not None and (mine.model, mine.model_revision) == (theirs.model, theirs.model_revision)
    if not same or (mine.speculation is None) == (theirs.speculation is None):
        return None
    return (one, other) if mine.speculation is not None else (other, one)


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
    sys.stdout.write(LISTED.dump_json(read_speed_ups(simulated=SIMULATED in sys.argv[1:])).decode())


if __name__ == "__main__":
    main()
