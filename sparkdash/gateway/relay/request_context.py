"""Want: what one request is, as the gateway understood it before anybody waits for an engine."""

from __future__ import annotations

from sparkdash.domain.base import per_request
from sparkdash.domain.profile import Profile
from sparkdash.gateway.deps import Deps
from sparkdash.gateway.http.exchange import Exchange
from sparkdash.gateway.protocol.peek import PeekedBody
from sparkdash.gateway.protocol.route import Route
from sparkdash.gateway.shared.body_budget import BodyShare


@per_request
class RequestContext:
    """One request's."""

    deps: Deps
    exchange: Exchange
    route: Route
    body_share: BodyShare
    """Where its body is, until an engine's answer begins."""
    peeked: PeekedBody
    name: str
    """What to ask the supervisor for."""
    profile: Profile | None
    """The profile of that name, when it was read; None: `auto`, or there is none."""
    batch: bool
    """May it wait for others?"""
