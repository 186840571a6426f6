"""Verdict of one cell, in words that claim no more than was measured.

Rule 1: a difference is claimed only if its interval excludes zero and it is larger than the box's own floor.
Rule 2: `no difference > y` states what is excluded: y covers the whole interval, and is at least the detectable effect.
A comparison that leaves more than RESOLUTION open is inconclusive.
Rule 3: where much is compared at once each comparison has a level of its own, for the claim and for the printed
interval. Who judges several cells gives the levels; else those of the cell's own arms hold. Pure.
"""

import math
from collections.abc import Sequence
from enum import StrEnum

from sparkdash.bench.judge.arm_comparison import Contrast
from sparkdash.bench.judge.stats import fdr_levels
from sparkdash.domain.base import Frozen

FLOOR = 0.005
"""Half a per cent, below which no difference is claimed. Launches of one profile lie 0.1 to 2 % apart, as published."""

RESOLUTION = 0.05
"""A comparison that cannot exclude 5 % decides nothing: kernels for this box are told apart by 4 to 5 %."""

NARROW = 0.02
"""Largest excluded change that is still printed as "no difference": beyond it, half of what is claimed could hide."""


class Conclusion(StrEnum):
    """Conclusion about an arm in a cell."""

    BASELINE = "baseline"
    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"
    INCONCLUSIVE = "inconclusive"
    SCREEN = "screen only"
    VOID = "void"
    MISSING = "not measured"
    IMPOSSIBLE = "impossible"

    @property
    def told(self) -> bool:
        return self in (Conclusion.FASTER, Conclusion.SLOWER)


class Verdict(Frozen):
    """A claim and its evidence. Relative changes of the figure: 0.041 is +4.1 %."""

    claim: Conclusion
    delta: float | None = None
    low: float | None = None
    high: float | None = None
    mde: float | None = None
    """The smallest change that this comparison finds 4 times in 5."""
    p: float | None = None
    floor: float | None = None
    """The box's own noise where it alone keeps a difference from being claimed."""
    reason: str | None = None
    """Why the cell is void, missing or impossible, or no more than a hint."""

    @property
    def text(self) -> str:
        """Verdict as printed: `faster +4.1 % [2.0, 6.3]`."""
        match self.claim:
            case Conclusion.FASTER | Conclusion.SLOWER:
                return f"{self.claim} {self._estimate}"
            case Conclusion.NO_DIFFERENCE | Conclusion.INCONCLUSIVE if self.floor is not None:
                return f"within the box's noise of {_ceiling(self.floor)} %: {self._estimate}"
            case Conclusion.NO_DIFFERENCE if (self.excluded or 0.0) <= NARROW:
                return f"no difference > {_ceiling(self.excluded)} %: {self._estimate}"
            case Conclusion.NO_DIFFERENCE:
                return f"not shown to differ: {self._estimate}"
            case Conclusion.INCONCLUSIVE:
                return f"inconclusive (MDE {_least(self.mde)} %): {self._estimate}"
            case Conclusion.SCREEN:
                few = f" ({self.reason})" if self.reason else ""
                return f"screen only{few}: looks like {_percent(self.delta)}"
            case _:
                return f"{self.claim}: {self.reason}" if self.reason else str(self.claim)

    @property
    def _estimate(self) -> str:
        return f"{_percent(self.delta)} [{_bound(self.low)}, {_bound(self.high)}]"

    @property
    def excluded(self) -> float | None:
        """Return the size above which changes are ruled out; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return max(abs(self.low), abs(self.high), self.mde or 0.0)


BASELINE = Verdict(claim=Conclusion.BASELINE)


def screen_verdict(log_ratio: float, reason: str | None = None) -> Verdict:
    return Verdict(claim=Conclusion.SCREEN, delta=math.expm1(log_ratio), reason=reason)


def judge_contrasts(
    contrasts: Sequence[Contrast], *, levels: Sequence[float] | None = None, less_is_better: bool = False
) -> list[Verdict]:
    """Judge several arms against one baseline in one cell; return the verdicts in the same order.

    `levels` are error levels, by default those of these contrasts alone. `less_is_better` is for latencies, where
    faster is a negative change.
    """
    levels = levels or fdr_levels([one.p for one in contrasts])
    return [_verdict(one, level, less_is_better) for one, level in zip(contrasts, levels, strict=True)]


def _verdict(found: Contrast, level: float, less_is_better: bool) -> Verdict:
    low, high = (math.expm1(bound) for bound in found.interval(level))
    verdict = Verdict(
        claim=Conclusion.INCONCLUSIVE,
        delta=math.expm1(found.log_ratio),
        low=low,
        high=high,
        mde=math.expm1(found.detectable(level)),
        p=found.p,
    )
    is_apart = low > 0 or high < 0
    if is_apart and abs(verdict.delta or 0.0) <= FLOOR:
        verdict = verdict.replace(floor=FLOOR)
    if is_apart and verdict.floor is None:
        claim = Conclusion.FASTER if (low > 0) != less_is_better else Conclusion.SLOWER
    elif (verdict.excluded or 0.0) <= RESOLUTION:
        claim = Conclusion.NO_DIFFERENCE
    else:
        return verdict
    return verdict.replace(claim=claim)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:+.1f} %"


def _bound(share: float | None) -> str:
    if share is not None and share > 10:
        return "over 1000"
    return "-" if share is None else f"{100 * share:.1f}"


def _least(share: float | None) -> str:
    """Beyond a doubling the figure says only that there were too few launches."""
    return "over 100" if share is not None and share > 1 else _bound(share)


def _ceiling(share: float | None) -> str:
    """Format a share as per cent, rounded up, so that the printed value is excluded as well."""
    return "-" if share is None else f"{math.ceil(share * 1000 - 1e-9) / 10:.1f}"
