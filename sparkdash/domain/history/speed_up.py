"""Measured speed of a speculating profile over the same model without speculation.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.base import Frozen


class SpeedUp(Frozen):
    """Ratio that one A/B run measured. A ratio below 1 is a loss."""

    profile: str
    """Profile that speculates."""
    fingerprint: str | None = None
    """Fingerprint of that profile as it was measured; None: unknown."""
    plain: str
    """Profile that decodes without speculation."""
    ratio: float
    """Decode rate of one request over that of the plain profile, geometric mean over the cells of the suite."""
    cells: int
    """Cells behind the ratio."""
    run: str
    """Id of the run."""
    measured_at: float
    """Beginning of the run, Unix seconds."""
    simulated: bool = False
    """Whether an engine of the run was simulated."""
