"""PURE: the stuck low-power state of a GB10: busy, slow, on little power, and nothing that holds it back.

Seen on owners' boxes: 96 % busy at 799 MHz and 19.5 W with no throttle reason, and 2281 MHz, 92.5 W and 1.7 times the
decode rate once the power supply had been unplugged; a reboot did not help (model-serving-minefield trap 124; NVIDIA
forum threads 376039, 361294, 366590). Healthy under load is 2.2-2.5 GHz and 50-95 W. Unverified on a GB10 of our own.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkdash.domain.metric import Gpu
from sparkdash.units import number, percent

BUSY = 0.9
SLOW_MHZ = 1400.0
LOW_W = 30.0
LASTS_S = 30.0
"""For how long all looks must show it: one look may fall between two kernels."""

CURE = "Unplug the power supply at both ends for a minute; a reboot does not help."


def shows(gpu: Gpu) -> bool:
    """Does this one look show it? False when the driver does not tell enough, or gives a reason (a cap that was set is one)."""
    if gpu.utilization is None or gpu.sm_clock_mhz is None or gpu.power_w is None:
        return False
    return gpu.utilization >= BUSY and gpu.sm_clock_mhz < SLOW_MHZ and gpu.power_w < LOW_W and not gpu.throttle


def stuck(looks: Sequence[Gpu]) -> bool:
    """Do all of several looks show it?"""
    return len(looks) > 1 and all(map(shows, looks))


def figures(gpu: Gpu) -> str:
    """The evidence: "96 % busy, 799 MHz, 19.5 W, held back by nothing"."""
    held = ", ".join(gpu.throttle) or "nothing"
    return (
        f"{percent(gpu.utilization)} busy, {number(gpu.sm_clock_mhz, 0, ' MHz')}, {number(gpu.power_w, 1, ' W')},"
        f" held back by {held}"
    )


class LowPower:
    """One look after another; `stuck` once they have shown it for `LASTS_S`, until one does not."""

    def __init__(self) -> None:
        self.stuck = False
        self._since: float | None = None

    def see(self, at: float, gpu: Gpu | None) -> bool:
        """Take the look of this moment (monotonic seconds); whether `stuck` changed. No look is no news."""
        if gpu is None:
            return False
        before = self.stuck
        if not shows(gpu):
            self._since = None
        elif self._since is None:
            self._since = at
        self.stuck = self._since is not None and at - self._since >= LASTS_S
        return self.stuck is not before
