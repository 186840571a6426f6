"""A swap as one line: its seven phases with the present one marked, and how long it takes.

Owns: that line, for a terminal and for a log file. Must not know when the swap is over.
"""

from __future__ import annotations

from sparkdash.cli.report import phase, swap_line, times
from sparkdash.cli.screen import LiveLine
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Swap, SwapPhase


class Progress:
    """Draws the progress of the swap to the profile `goal`; until it begins, of another swap under way."""

    def __init__(self, goal: str) -> None:
        self._goal = goal
        self._line = LiveLine()

    def show(self, world: Snapshot) -> None:
        """Draw the present state."""
        swap = world.swap_to(self._goal) or world.swap
        if swap is None:
            return
        if swap.target is not None and swap.target != self._goal:
            wait = f"{self._goal} waits for the swap {swap_line(swap, world.at)}"
            self._line.draw(wait, f"{self._goal} waits for the swap to {swap.target}")
        else:
            self._line.draw(steps(swap, world.at), _plain(swap))

    def clear(self) -> None:
        """Take the line away."""
        self._line.clear()


def steps(swap: Swap, now: float) -> str:
    """ "drain stop reclaim preflight create [load weights 63 %] warm  38 % in 43s, about 1m40s left". Pure."""
    words = [f"[{phase(swap)}]" if step is swap.phase else step.value for step in SwapPhase]
    return f"{' '.join(words)}  {times(swap, now)}"


def _plain(swap: Swap) -> str:
    """Changes with the phase and the load's stage only, so that a log gets a dozen lines and not a thousand."""
    stage = f" {swap.progress.stage}" if swap.progress else ""
    return f"{swap.phase.value}{stage}"
