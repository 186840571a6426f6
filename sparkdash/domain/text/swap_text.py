"""Texts about a swap under way, shared by the command line, the screen and streams of waiting clients.

Rule: an estimate needs earlier swaps of the kind, and carries their spread; otherwise only the elapsed time is told. A
load that stands still has no estimate.
Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from sparkdash.domain.profile import AUTO
from sparkdash.domain.swap import Swap, SwapPhase
from sparkdash.units import age, percent

_ENDS = {SwapPhase.DRAIN: "cut", SwapPhase.STOP: "killed"}
"""Consequence for those who are waited for too long."""


class TimeLeft(NamedTuple):
    """Seconds that a swap should still take, without the rest of a drain."""

    s: float
    low_s: float | None
    high_s: float | None
    """Upper bound; None while only one earlier swap is known."""


def time_left(swap: Swap, now: float) -> TimeLeft | None:
    """Count the estimate on to `now`; None before the first such swap. All zero: longer than ever before."""
    if swap.eta_s is None or swap.eta_at is None:
        return None
    passed = 0.0 if swap.phase in (SwapPhase.COPY, SwapPhase.DRAIN) else max(0.0, now - swap.eta_at)
    low, high = swap.eta_low_s, swap.eta_high_s
    return TimeLeft(
        max(0.0, swap.eta_s - passed),
        None if low is None else max(0.0, low - passed),
        None if high is None else max(0.0, high - passed),
    )


def stage_text(swap: Swap) -> str:
    """Word the load's stage and share, such as "weights 62 %"; the phase where the log names none."""
    if swap.progress is None:
        return swap.phase.value
    share = f" {percent(swap.progress.fraction)}" if swap.progress.fraction is not None else ""
    return swap.progress.stage + share


def wait_text(swap: Swap, now: float) -> str:
    """Word the wait, such as "waits for 2 requests of a, cut in 1m40s"; empty when nothing is waited for, or the
    progress says so.
    """
    if swap.waits_for is None:
        return ""
    words = f"waits for {swap.waits_for}"
    if swap.until is None:
        return words
    end, left_s = _ENDS.get(swap.phase, "given up"), swap.until - now
    return f"{words}, {end} in {age(left_s)}" if left_s >= 0 else f"{words}, {end} {age(-left_s)} ago"


def still_text(swap: Swap, now: float) -> str:
    """Word the standstill and what follows, such as "no progress for 2m10s, ended in 17m50s"; empty while the load
    moves.
    """
    if swap.still_since is None:
        return ""
    words = f"no progress for {age(now - swap.still_since)}"
    return words if swap.gives_up_at is None else f"{words}, ended in {age(max(0.0, swap.gives_up_at - now))}"


def heard_text(swap: Swap, now: float) -> str:
    """Word the age of the log's last line, such as "last line 3s ago"; empty before the first, and after the load."""
    if swap.heard_at is None or swap.phase is not SwapPhase.LOAD:
        return ""
    return f"last line {age(max(0.0, now - swap.heard_at))} ago"


def estimate_text(swap: Swap, now: float) -> str:
    """Word the estimate: "about 1m40s left (1m20s to 2m10s)", "longer than usual", or "first load here".

    "stalled: no progress for 2m10s, ended in 17m50s" replaces each of these. Empty for a swap that only stops.
    """
    if swap.target is None:
        return ""
    if swap.still_since is not None:
        return f"stalled: {still_text(swap, now)}"
    rest = time_left(swap, now)
    if rest is None:
        return "first load here"
    if not rest.s and not rest.high_s:
        return "longer than usual"
    spread = ""
    if rest.low_s is not None and rest.high_s is not None:
        spread = f" ({age(rest.low_s)} to {age(rest.high_s)})"
    after = f" after the {swap.phase}" if swap.phase in (SwapPhase.COPY, SwapPhase.DRAIN) else ""
    return f"about {age(rest.s)} left{after}{spread}"


def progress_text(swap: Swap, now: float) -> str:
    """Word stage and estimate: "weights 62 % · about 1m40s left (1m20s to 2m10s)".

    Without an estimate: "weights 62 % · first load here, 43s so far".
    """
    words = [stage_text(swap), estimate_text(swap, now)]
    if swap.target is not None and swap.eta_s is None:
        words[1] += f", {age(now - swap.started_at)} so far"
    return " · ".join(filter(None, words))


def waiting_text(swap: Swap | None, profile: str, now: float) -> str:
    """Word what a request for `profile` waits for; `auto` matches any target. Empty when unknown."""
    if swap is None:
        return ""
    if swap.target is None:
        return f"{', '.join(swap.evict)} stops"
    words = f"{swap.target}: {progress_text(swap, now)}"
    return words if profile in (swap.target, AUTO) else f"{profile} comes after {words}"
