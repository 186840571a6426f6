"""The frozen base of every domain value that crosses a process border."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value that cannot change and refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")
