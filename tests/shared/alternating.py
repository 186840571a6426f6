"""Launches in turns, A B A B A B, as runs were recorded before each run's order was drawn."""

from collections.abc import Sequence

from sparkdash.bench.plan.run_plan import PASSES
from sparkdash.bench.run import LaunchSlot, Mode


def alternating(arms: Sequence[str], mode: Mode) -> tuple[LaunchSlot, ...]:
    """Return the mode's passes over all arms, always in the same order."""
    return tuple(LaunchSlot(arm=arm, block=block) for block in range(PASSES[mode]) for arm in arms)
