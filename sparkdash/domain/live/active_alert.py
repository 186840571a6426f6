"""ActiveAlert: a figure that is beyond the limit of config.toml now.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.base import Frozen


class ActiveAlert(Frozen):
    """A figure of an engine, or of a box (then `profile` is empty), beyond its limit. Values in the figure's unit."""

    figure: str
    label: str
    unit: str
    profile: str
    node: str
    value: float
    """Value at the time of the alert."""
    limit: float
    above: bool
    """Whether the value is greater than the limit; otherwise it is smaller."""
    since: float
    """Time at which the limit was passed; Unix seconds."""

    @property
    def text(self) -> str:
        """Sentence for people."""
        whose = self.profile or "the box"
        sign = "above" if self.above else "below"
        return f"{self.label} of {whose} is {_told(self.value, self.unit)}, {sign} {_told(self.limit, self.unit)}."


def _told(value: float, unit: str) -> str:
    if unit == "share":
        return f"{value * 100:.3g} %"
    if unit in ("bytes", "bytes/s"):
        return f"{value / 2**30:.3g} GiB{unit.removeprefix('bytes')}"
    return f"{value:.3g} {'°C' if unit == 'C' else unit}".strip()
