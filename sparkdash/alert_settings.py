"""Alert: one table `[[alerts]]` of config.toml, a limit that a recorded figure should not pass.

Pure.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MOST_ALERTS = 32


class Alert(BaseModel):
    """Limit of a figure, in the figure's own unit: seconds, shares of 0..1, bytes, tok/s."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    figure: str = Field(pattern=r"^[a-z0-9_]+$", max_length=64)
    """Name of the figure, as `GET /api/history/figures` lists it: ttft_p95_s, kv_used, gpu_temperature_c."""
    above: float | None = None
    """Alert while the figure is greater."""
    below: float | None = None
    """Alert while the figure is smaller."""
    for_s: float = Field(default=0.0, ge=0, le=86400)
    """Seconds for which the limit must be passed without a break."""
    profiles: tuple[str, ...] = ()
    """Profiles whose engines count, `*` allowed; empty: all engines and the boxes."""

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if (self.above is None) == (self.below is None):
            raise ValueError("an alert has either `above` or `below`")
        return self

    @property
    def limit(self) -> float:
        """The limit, whichever side it is on."""
        return self.above if self.above is not None else self.below or 0.0

    def passes(self, value: float) -> bool:
        """Whether the value is beyond the limit."""
        return value > self.above if self.above is not None else value < self.limit

    def watches(self, profile: str) -> bool:
        """Whether figures of this profile's engine count; "" is a box."""
        return not self.profiles or any(fnmatchcase(profile, one) for one in self.profiles)
