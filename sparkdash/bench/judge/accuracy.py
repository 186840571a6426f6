"""Accuracy of answers, compared item by item between two arms.

Owns: the accuracy gate. Must not know: how items are made or judged.
Rule: arms are compared only on the same items. A difference between 74 % and 70 % of fifty is noise; only the items on
which the arms differ carry information.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sparkdash.bench.judge.stats import Paired, mcnemar, paired_difference
from sparkdash.domain.base import Frozen

MARGIN = 0.05
"""An arm that may be more than five points worse does not pass."""


class AccuracyGate(StrEnum):
    """Result of the accuracy test of an arm against the baseline."""

    PASS = "pass"  # noqa: S105 - no password
    """The 95 % interval of the difference lies above minus the margin: it is not worse by as much as that."""
    FAIL = "fail"
    """The interval lies below minus the margin: it is worse by more."""
    NO_EVIDENCE = "no evidence"
    """Neither: more questions would tell."""


class AccuracyVerdict(Frozen):
    """Arm B against arm A on the items that both answered. Shares 0..1."""

    gate: AccuracyGate
    n: int
    difference: float | None = None
    """Share right in B minus share right in A."""
    low: float | None = None
    high: float | None = None
    p: float | None = None
    """Exact two-sided p value of McNemar's test."""
    only_a: tuple[str, ...] = ()
    """Items that only A has right."""
    only_b: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """`pass -1.0 points [-3.6, 1.5], 3 lost, 1 won, p = 0.62`."""
        if self.difference is None or self.low is None or self.high is None or self.p is None:
            return f"{self.gate} (no common items)"
        return (
            f"{self.gate} {100 * self.difference:+.1f} points [{100 * self.low:.1f}, {100 * self.high:.1f}], "
            f"{len(self.only_a)} lost, {len(self.only_b)} won, p = {self.p:.2g}"
        )


def compare_accuracy(a: Mapping[str, bool], b: Mapping[str, bool], margin: float = MARGIN) -> AccuracyVerdict:
    """Test whether B is non-inferior to A. Both map each item to whether its answer was right."""
    shared = [item for item in a if item in b]
    if not shared:
        return AccuracyVerdict(gate=AccuracyGate.NO_EVIDENCE, n=0)
    only_a = tuple(item for item in shared if a[item] and not b[item])
    only_b = tuple(item for item in shared if b[item] and not a[item])
    both = sum(a[item] and b[item] for item in shared)
    pairs = Paired(both, len(only_a), len(only_b), len(shared) - both - len(only_a) - len(only_b))
    low, high = paired_difference(pairs)
    return AccuracyVerdict(
        gate=_gate(low, high, margin),
        n=pairs.n,
        difference=pairs.difference,
        low=low,
        high=high,
        p=mcnemar(pairs),
        only_a=only_a,
        only_b=only_b,
    )


def _gate(low: float, high: float, margin: float) -> AccuracyGate:
    if low > -margin:
        return AccuracyGate.PASS
    return AccuracyGate.FAIL if high < -margin else AccuracyGate.NO_EVIDENCE
