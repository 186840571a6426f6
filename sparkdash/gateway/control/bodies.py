"""What the routes of `/api` take and give, beyond the domain's own nouns."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Header
from pydantic import BaseModel, ConfigDict, Field

from sparkdash.domain.measuring import Measuring
from sparkdash.domain.profile import ProfileSummary
from sparkdash.limits import COUNT, PRINTABLE, WORD

Token = Annotated[str | None, Header(description="The token of POST /api/lease")]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PullBody(_Body):
    """Whose image to fetch; name or alias."""

    profile: str


class UseBody(_Body):
    """Which profile to make resident, by name or alias, and on whose behalf."""

    profile: str
    cause: Literal["user", "bench"] = "user"


class LeaseBody(_Body):
    """Take the gateway for oneself; with a token, keep it."""

    holder: str = Field(min_length=1, max_length=WORD, pattern=PRINTABLE)
    """Who, for those who are told to wait."""
    token: str | None = None
    expected_s: float | None = Field(default=None, ge=0, le=COUNT, allow_inf_nan=False)
    """How long it will still take."""
    measuring: Measuring | None = None
    """Where it is, for the screens; without it they are left as they are."""
    shares: bool = False
    """Let others in: only another holder is refused."""
    pid: int | None = Field(default=None, gt=0, lt=2**31)
    """The holder's process: its end is the lease's. Heeded over the unix socket only, as over TCP it may be on another box."""


class LeaseGranted(_Body):
    """Every request of the holder carries the token in the header `x-sparkdash-lease`."""

    token: str
    ttl_s: float
    """It lapses unless it is renewed within so many seconds."""
    ends: bool = False
    """Somebody asked for its end: the holder stops, and lets go."""


class StopBody(_Body):
    """Which profile's engine to stop; null stops all."""

    profile: str | None = None
    wait: bool = True
    """Answer when the engine is gone; otherwise at once."""


class ReleaseBody(_Body):
    """Which parked profile may be tried again; null means all."""

    profile: str | None = None


class NoBody(_Body):
    """Nothing to say: `{}`."""


class ToggleBody(_Body):
    """New marks (what is left out stays), and whether to switch."""

    a: str | None = None
    b: str | None = None
    flip: bool = False


class TrafficBody(_Body):
    """Should the demo's traffic run?"""

    on: bool


class ShutdownBody(_Body):
    """What becomes of the engines: kept ones are adopted by the next daemon."""

    engines: Literal["keep", "stop"] = "keep"


class ProfileList(_Body):
    """The whole catalog, and the files that could not be read."""

    profiles: tuple[ProfileSummary, ...]
    problems: tuple[str, ...]


class Toggle(_Body):
    """The two marked profiles. `active` is the one that runs or is being brought up, marked or not."""

    a: str | None
    b: str | None
    active: str | None


class Done(_Body):
    """The request was carried out, or is under way: the feed tells."""

    ok: bool = True


class Health(_Body):
    """The gateway is up, whatever the engines do."""

    status: Literal["ok"] = "ok"


class ErrorBody(BaseModel):
    """What went wrong."""

    model_config = ConfigDict(extra="allow")

    message: str
    type: str
    param: str | None
    code: str
    hint: str | None
    src: str


class Problem(BaseModel):
    """The body of every error."""

    error: ErrorBody
