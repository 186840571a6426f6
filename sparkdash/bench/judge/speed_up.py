"""Speed of a run's speculating arms over its arm without speculation.

Rule 1: both arms serve the same model, of the same revision, as the launches themselves said it. Rule 2: only what the
run may claim counts: no screen, no inconclusive comparison.

Pure.
"""

from __future__ import annotations

from sparkdash.bench.judge.judgement import overall
from sparkdash.bench.judge.verdict import Conclusion
from sparkdash.bench.records import Provenance
from sparkdash.bench.results import Results
from sparkdash.bench.run import Arm, Kind
from sparkdash.domain.profile import SpeedUp

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
