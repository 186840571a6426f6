"""Answer models of the control API that are no domain values.

Owns: their fields. Rule: keys that a newer daemon added are ignored. Must not know which route gives them: `control`
does.

Pure.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from sparkdash.domain.profile import ProfileSummary


class ApiAnswer(BaseModel):
    """Answer of one call."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Done(ApiAnswer):
    """The order was carried out, or is under way; the feed tells of it."""

    ok: bool = True


class ProfileList(ApiAnswer):
    """Catalog: all profiles, and the problems of the files that were left out."""

    profiles: tuple[ProfileSummary, ...]
    problems: tuple[str, ...]


class TogglePair(ApiAnswer):
    """The A and the B profile. `active` runs or is coming up, and may be neither of them."""

    a: str | None
    b: str | None
    active: str | None


class LeaseGranted(ApiAnswer):
    """Lease of the gateway. Every request of the holder carries the token in the header `x-sparkdash-lease`."""

    token: str
    ttl_s: float
    """Seconds after which the lease lapses unless it is renewed."""
    ends: bool = False
    """The holder was asked to stop and to give the lease back."""


class GatewayHealth(ApiAnswer):
    """The gateway is up, whatever the state of its engines."""

    status: Literal["ok"] = "ok"


class ErrorBody(BaseModel):
    """Description of an error, and what to do."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    message: str
    type: str
    param: str | None
    code: str
    hint: str | None
    src: str


class ErrorEnvelope(BaseModel):
    """Body of every error."""

    model_config = ConfigDict(defer_build=True)

    error: ErrorBody
