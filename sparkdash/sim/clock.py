"""Clock of the simulated GPU: a cap that its engines and its box follow.

Owns: the file that tells the processes of a simulated box, and what a cap does to speed and power. Must not know: who
caps. All of it is invented: prefill follows the clock, decode hangs on memory for the most part, power falls with the
square of the clock.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from sparkdash.host.gpu_clock import out_of_range

FULL_MHZ, HIGHEST_MHZ = 2405.0, 3003.0
"""Clock under load without a cap, and the highest that the simulated driver names."""
COMPUTE_SHARE = 0.15
"""Share of a decode step's time that follows the clock."""
_FILE = "gpu-clock-cap"


class SimulatedClock:
    """Caps the clock of the simulated box in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _FILE

    async def check(self, mhz: int) -> None:
        """Refuse a clock above the highest."""
        if mhz > HIGHEST_MHZ:
            raise out_of_range(mhz, HIGHEST_MHZ)

    async def cap(self, mhz: int) -> None:
        """Hold the clock at or below `mhz`."""
        await self.check(mhz)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        part = self._file.with_suffix(".part")
        part.write_text(str(mhz))
        part.replace(self._file)

    async def uncap(self) -> None:
        """Lift the cap."""
        self._file.unlink(missing_ok=True)


def clock_share(folder: Path) -> float:
    """Return the clock under load as a share of the uncapped one."""
    with contextlib.suppress(OSError, ValueError):
        return min(1.0, int((folder / _FILE).read_text()) / FULL_MHZ)
    return 1.0


def prefill_factor(share: float) -> float:
    """Return the factor on the prefill rate."""
    return share


def decode_factor(share: float) -> float:
    """Return the factor on the decode rate."""
    return 1.0 / (1.0 - COMPUTE_SHARE + COMPUTE_SHARE / share)


def power_factor(share: float) -> float:
    """Return the factor on the watts above the idle box."""
    return share * share
