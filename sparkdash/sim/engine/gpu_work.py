"""GPU work of the simulated engine: seconds of prefill and decode, share of GPU time, watts.

Owns: the sums, and the power of each kind of work. Must not know: requests.
Watts are above the idle box. On a GB10 decode draws about 45 W, prefill 46 to 95 W, and a kernel that never ends 13 to
27 W at 95 % utilization.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkdash.sim.engine.faults import Hang

DECODE_W, PREFILL_W = 40.0, 65.0
SPUN = {Hang.CORE: (0.96, 15.0), Hang.SPIN: (1.0, 75.0)}
"""(share of the GPU's time, watts) of a step that never ends."""


@dataclass(slots=True)
class GpuWork:
    """Seconds spent in steps, the current step included up to now."""

    prefill_s: float = 0.0
    decode_s: float = 0.0
    _began: float = 0.0
    _prefill: float = 0.0
    _decode: float = 0.0

    def begin(self, now: float, prefill_s: float, decode_s: float) -> None:
        """Begin a step of this duration; prefill first."""
        self._began, self._prefill, self._decode = now, prefill_s, decode_s

    def end(self) -> None:
        """End the step."""
        self.prefill_s += self._prefill
        self.decode_s += self._decode
        self._prefill = self._decode = 0.0

    def spent(self, now: float) -> tuple[float, float]:
        """Return seconds of prefill and of decode up to now."""
        gone = now - self._began
        prefill = min(self._prefill, gone)
        return self.prefill_s + prefill, self.decode_s + min(self._decode, gone - prefill)


class GpuMeter:
    """Converts two readings of the work into a share of GPU time and watts."""

    def __init__(self, now: float) -> None:
        self._at, self._seen = now, (0.0, 0.0)

    def read(self, now: float, spent: tuple[float, float], hang: Hang | None) -> tuple[float, float]:
        """Return (share 0..1, watts above idle) since the last reading."""
        span = now - self._at
        shares = [(new - old) / span if span > 0 else 0.0 for new, old in zip(spent, self._seen, strict=True)]
        self._at, self._seen = now, spent
        if hang in SPUN:
            return SPUN[hang]
        busy = sum(shares)
        scale = 1.0 / busy if busy > 1.0 else 1.0  # a late step is made good by shorter ones
        watts = (shares[0] * PREFILL_W + shares[1] * DECODE_W) * scale
        return min(1.0, busy), round(watts, 1)
