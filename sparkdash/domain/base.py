"""The frozen base of every domain value that crosses a process border."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value that cannot change and refuses keys it does not know."""

    # a validator is built when it is first needed: a start, and most commands, need few of them
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
