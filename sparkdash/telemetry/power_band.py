"""Power below which a GPU computes nothing, learnt from its idle and decoding times.

Owns: the samples, and the limit learnt from them. Must not know how power is read, nor what an engine is. Liveness
uses the limit: an engine that holds work on a GPU below it may be stuck. A hung kernel shows 96 % utilization, so
only the power tells it from work.

A GB10 idles at 3-12 W, waits in a hung kernel at 13-27 W, and decodes at 45 W and more (reports by owners of vLLM
issues #40926 and #49203, model-serving-minefield; not measured by us). Other GPUs differ by a factor of ten. Their
limit is learnt: halfway between the idle mean and the 10th percentile of the last hour's decoding.

Pure.
"""

from __future__ import annotations

from collections import deque
from statistics import fmean

GB10_LOW_W = 30.0
KEPT_S = 3600.0
"""Age up to which a sample of decoding counts."""
LEAST_DECODING = 60
"""Samples of decoding, 5 s apart, before a limit is known."""
LEAST_IDLE = 12
LEAST_FACTOR = 1.5
"""Least ratio of decoding power to idle power; below it, power says nothing about work on this GPU."""
EVERY_S = 5.0
"""Least time between two samples of a kind."""


class PowerBand:
    """Learns one GPU's limit. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._decoding: deque[tuple[float, float]] = deque(maxlen=int(KEPT_S / EVERY_S))
        self._idle: deque[tuple[float, float]] = deque(maxlen=int(KEPT_S / EVERY_S))

    def see(self, at: float, power_w: float | None, *, decodes: bool, holds_work: bool) -> None:
        """Add a sample. `decodes`: an engine generated tokens since the last one; `holds_work`: it has requests."""
        if power_w is None or (holds_work and not decodes):
            return
        samples = self._decoding if decodes else self._idle
        if not samples or at - samples[-1][0] >= EVERY_S:
            samples.append((at, power_w))

    def low_w(self, name: str | None, now: float) -> float | None:
        """Power below which the GPU of that name computes nothing; None while unknown."""
        if name is not None and "GB10" in name:
            return GB10_LOW_W
        decoding = sorted(power for at, power in self._decoding if now - at <= KEPT_S)
        if len(decoding) < LEAST_DECODING or len(self._idle) < LEAST_IDLE:
            return None
        idle, tenth = fmean(power for _, power in self._idle), decoding[len(decoding) // 10]
        return (idle + tenth) / 2 if tenth >= LEAST_FACTOR * idle else None
