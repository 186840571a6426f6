"""A swap under way in words, the same for the command line, the screen and the streams of clients that wait. Pure.

Rule: an estimate is only told where such a swap was seen before, with the spread of those seen; otherwise only what
has passed. Of a load that stands still nothing is estimated.
"""

from __future__ import annotations

from typing import NamedTuple

from sparkdash.domain.profile import AUTO
from sparkdash.domain.swap import Swap, SwapPhase
from sparkdash.units import age, percent

_ENDS = {SwapPhase.DRAIN: "cut", SwapPhase.STOP: "killed"}
"""What becomes of those who are waited for too long."""


class TimeLeft(NamedTuple):
    """Seconds that a swap should still take, a drain's rest left out."""

    s: float
    low_s: float | None
    high_s: float | None
    """None while only one such swap was seen."""


def time_left(swap: Swap, now: float) -> TimeLeft | None:
    """Counted on from when it was told; None before the first such swap. All zero: it takes longer than it ever did."""
    if swap.eta_s is None or swap.eta_at is None:
        return None
    passed = 0.0 if swap.phase is SwapPhase.DRAIN else max(0.0, now - swap.eta_at)
    low, high = swap.eta_low_s, swap.eta_high_s
    return TimeLeft(
        max(0.0, swap.eta_s - passed),
        None if low is None else max(0.0, low - passed),
        None if high is None else max(0.0, high - passed),
    )


def stage_text(swap: Swap) -> str:
    """ "weights 62 %": the load's stage and its own share where the log tells them, else the phase."""
    if swap.progress is None:
        return swap.phase.value
    share = f" {percent(swap.progress.fraction)}" if swap.progress.fraction is not None else ""
    return swap.progress.stage + share


def wait_text(swap: Swap, now: float) -> str:
    """ "waits for 2 requests of a, cut in 1m40s"; empty where nothing is waited for, or the load's progress tells it."""
    if swap.waits_for is None:
        return ""
    words = f"waits for {swap.waits_for}"
    if swap.until is None:
        return words
    end, left_s = _ENDS.get(swap.phase, "given up"), swap.until - now
    return f"{words}, {end} in {age(left_s)}" if left_s >= 0 else f"{words}, {end} {age(-left_s)} ago"


def still_text(swap: Swap, now: float) -> str:
    """ "no progress for 2m10s"; empty while the load moves."""
    return "" if swap.still_since is None else f"no progress for {age(now - swap.still_since)}"


def estimate_text(swap: Swap, now: float) -> str:
    """ "about 1m40s left (1m20s to 2m10s)", "longer than usual", or "first load here".

    "no progress for 2m10s" replaces each of these. Empty for a swap that only stops.
    """
    if swap.target is None:
        return ""
    if swap.still_since is not None:
        return still_text(swap, now)
    rest = time_left(swap, now)
    if rest is None:
        return "first load here"
    if not rest.s and not rest.high_s:
        return "longer than usual"
    spread = ""
    if rest.low_s is not None and rest.high_s is not None:
        spread = f" ({age(rest.low_s)} to {age(rest.high_s)})"
    after = " after the drain" if swap.phase is SwapPhase.DRAIN else ""
    return f"about {age(rest.s)} left{after}{spread}"


def progress_text(swap: Swap, now: float) -> str:
    """ "weights 62 % · about 1m40s left (1m20s to 2m10s)"; of a first load "weights 62 % · first load here, 43s so far"."""
    words = [stage_text(swap), estimate_text(swap, now)]
    if swap.target is not None and swap.eta_s is None:
        words[1] += f", {age(now - swap.started_at)} so far"
    return " · ".join(filter(None, words))


def waiting_text(swap: Swap | None, profile: str, now: float) -> str:
    """What a request for `profile` waits for; `auto` takes what comes. Empty when nothing is known of it."""
    if swap is None:
        return ""
    if swap.target is None:
        return f"{', '.join(swap.evict)} stops"
    words = f"{swap.target}: {progress_text(swap, now)}"
    return words if profile in (swap.target, AUTO) else f"{profile} comes after {words}"
