"""RequestContext: what the gateway knows of one request before it waits for an engine."""

from __future__ import annotations

from sparkdash.domain.base import per_request
from sparkdash.domain.profile import Profile
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol.peek import PeekedBody
from sparkdash.gateway.protocol.route import Route
from sparkdash.gateway.shared.body_budget import BodyShare
from sparkdash.gateway.shared.upload import Upload


@per_request
class RequestContext:
    """Request, understood and admitted."""

    deps: Deps
    exchange: Exchange
    route: Route
    body_share: BodyShare
    """Holds the body until an engine's answer begins."""
    peeked: PeekedBody
    name: str
    """Name for the supervisor."""
    profile: Profile | None
    """Profile of `name`, if it was read; None for `auto` and for an unknown name."""
    batch: bool
    """Whether other requests may go first."""
    upload: Upload | None = None
    """Body that is on disk, in place of the share's."""
