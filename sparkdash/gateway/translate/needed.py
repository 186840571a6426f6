"""Whether a request must be translated for an engine.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.profile import ApiProtocol, Profile
from sparkdash.engines import capabilities
from sparkdash.gateway.protocol.route import Route

TRANSLATED = {"/v1/messages": ApiProtocol.MESSAGES, "/v1/responses": ApiProtocol.RESPONSES}
"""Paths that can be sent as a chat instead."""


def needs_translation(profile: Profile, version: str | None, route: Route) -> bool | None:
    """Return whether to translate: False: not needed or impossible; None: only the engine's 404 tells."""
    protocol = TRANSLATED.get(route.path) if route.profile is None else None
    return False if protocol is None else capabilities.lacks_protocol(profile, version, protocol)
