"""Sweep over caps of the GPU's clock: one profile at several clocks, with one build of its engine.

Owns: how the values are written, the arms, their baseline. Must not know: how a clock is capped, which cap to choose
(judge/clock_choice.py).
Rule: the baseline is the highest clock, and no cap where `free` is among the values. Nothing but the clock differs.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkdash.bench.plan.sweep import Sweep
from sparkdash.bench.run import Arm
from sparkdash.errors import AdmissionError

CLOCK = "gpu-clock"
FREE = "free"
"""Value of the arm without a cap."""
MOST_LOSS = 0.05
"""Largest loss of decode rate for which a lower clock is recommended, unless given."""


def is_clock_sweep(text: str) -> bool:
    """Whether NAME=VALUES sweeps the clock, and not a flag of the engine."""
    return text.partition("=")[0].strip() == CLOCK


def clock_arms(asked: Sweep, profile: str) -> tuple[Arm, ...]:
    """Return one arm per clock, the baseline first.

    Raises:
        AdmissionError: `sweep_invalid`: a value is no clock in MHz.
    """
    if wrong := [value for value in asked.values if value != FREE and not (value.isdecimal() and int(value))]:
        raise AdmissionError(
            f"{wrong[0]!r} is no clock in MHz.",
            code="sweep_invalid",
            hint=f"Write it like {CLOCK}=1400,1800,2200 or {CLOCK}={FREE},1800,2200.",
        )
    ranked = sorted(asked.values, key=lambda value: float("inf") if value == FREE else int(value), reverse=True)
    return tuple(Arm(name=f"{CLOCK}={value}", profile=profile, parameters={CLOCK: value}) for value in ranked)


def is_clock_arm(arm: Arm) -> bool:
    """Whether the arm belongs to a sweep of the clock."""
    return CLOCK in arm.parameters


def cap_mhz(arm: Arm) -> int | None:
    """Return the arm's cap in MHz; None: the clock is free."""
    value = arm.parameters.get(CLOCK, FREE)
    return None if value == FREE else int(value)


def clock_words(arms: Sequence[Arm]) -> str | None:
    """Return `PROFILE --sweep gpu-clock=VALUES` of these arms; None unless they sweep the clock."""
    if not arms or not all(map(is_clock_arm, arms)):
        return None
    return f"{arms[0].profile} --sweep {CLOCK}={','.join(arm.parameters[CLOCK] for arm in arms)}"


def loss_of(text: str) -> float:
    """Parse "5%" or "5" per cent.

    Raises:
        ValueError: it is no share below 100 %.
    """
    share = float(text.strip().removesuffix("%")) / 100
    if not 0 <= share < 1:
        raise ValueError(text)
    return share
