"""A swap on one line: seven phases with the current one marked, and the time that remains.

Owns: that line, for a terminal and for a log file. Must not know: when the swap is over.
"""

from __future__ import annotations

from sparkdash.cli.engines.status_page import phase_text, swap_line, time_text
from sparkdash.cli.output.screen import LiveLine
from sparkdash.domain.phrases import wait_text
from sparkdash.domain.state import Snapshot
from sparkdash.domain.swap import Swap, SwapPhase, phases_of


class SwapProgressLine:
    """Draws the swap to the profile `goal`; until that begins, the swap that is under way."""

    def __init__(self, goal: str) -> None:
        self._goal = goal
        self._line = LiveLine()
        self._waits: dict[SwapPhase, str] = {}
        """First waiting text of each phase."""

    def show(self, world: Snapshot) -> None:
        """Draw the swap's current state."""
        swap = world.swap_to(self._goal) or world.swap
        if swap is None:
            return
        if swap.target is not None and swap.target != self._goal:
            wait = f"{self._goal} waits for the swap {swap_line(swap, world.at)}"
            self._line.draw(wait, f"{self._goal} waits for the swap to {swap.target}")
        else:
            self._line.draw(swap_steps(swap, world.at), self._plain(swap, world.at))

    def _plain(self, swap: Swap, now: float) -> str:
        """Return text that changes only with phase and load stage, so that a log gets a dozen lines, not a thousand."""
        stage = f" {swap.progress.stage}" if swap.progress else ""
        if swap.phase not in self._waits and (waits := wait_text(swap, now)):
            self._waits[swap.phase] = f": {waits}"
        return f"{swap.phase.value}{stage}{self._waits.get(swap.phase, '')}"

    def clear(self) -> None:
        """Clear the line."""
        self._line.clear()


def swap_steps(swap: Swap, now: float) -> str:
    """Format the steps: "drain stop reclaim preflight create [load weights 63 %] warm  38 % in 43s, about 1m40s left".

    A wait replaces the other steps: "drain  waits for 2 requests of a, cut in 1m40s  20s".
    """
    if waits := wait_text(swap, now):
        return f"{phase_text(swap)}  {waits}  {time_text(swap, now)}"
    words = [f"[{phase_text(swap)}]" if step is swap.phase else step.value for step in phases_of(swap)]
    return f"{' '.join(words)}  {time_text(swap, now)}"
