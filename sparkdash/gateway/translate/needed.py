"""Does this engine speak the protocol of this request? Pure.

Owns: the answer, out of what the profile says and what is known of the engine's version.
"""

from __future__ import annotations

from sparkdash.domain.profile import ApiProtocol, Profile
from sparkdash.engines.registry import adapter
from sparkdash.gateway.mends import version_of
from sparkdash.gateway.route import Route

TRANSLATED = {"/v1/messages": ApiProtocol.MESSAGES, "/v1/responses": ApiProtocol.RESPONSES}
"""What can be asked as a chat instead."""


def lacks(profile: Profile, version: str | None, route: Route) -> bool | None:
    """True: it must be translated. False: it need not, or cannot be. None: only the engine knows, by its 404.

    `version` is the engine's own word for it; the profile's stands in.
    """
    protocol = TRANSLATED.get(route.path) if route.profile is None else None
    if protocol is None:
        return False
    if profile.protocols is not None:
        return protocol not in profile.protocols
    since = adapter(profile.engine).speaks_since
    if protocol not in since:
        return None
    first, found = since[protocol], version_of(version or profile.engine_version)
    if first is None:
        return True
    return None if found is None else found < first
