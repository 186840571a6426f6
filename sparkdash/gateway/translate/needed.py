"""Must this request be translated for this engine? Pure."""

from __future__ import annotations

from sparkdash.domain.profile import ApiProtocol, Profile
from sparkdash.engines.capabilities import protocols
from sparkdash.gateway.protocol.route import Route

TRANSLATED = {"/v1/messages": ApiProtocol.MESSAGES, "/v1/responses": ApiProtocol.RESPONSES}
"""What can be asked as a chat instead."""


def needs_translation(profile: Profile, version: str | None, route: Route) -> bool | None:
    """True: it must be translated. False: it need not, or cannot be. None: only the engine knows, by its 404."""
    protocol = TRANSLATED.get(route.path) if route.profile is None else None
    return False if protocol is None else protocols.lacks(profile, version, protocol)
