"""Protocols that an engine speaks, as far as known without asking it.

Owns: the answer from the profile and the known versions of each engine.
Pure.
"""

from __future__ import annotations

from sparkdash.domain.profile import ApiProtocol, EngineKind, Profile
from sparkdash.engines.registry import adapter_of
from sparkdash.engines.versions import version_of
from sparkdash.servers.registry import server_of


def lacks_protocol(profile: Profile, version: str | None, protocol: ApiProtocol) -> bool | None:
    """Whether the engine lacks this protocol; None when only the engine knows.

    `version` is the engine's own report; without it the profile's version counts.
    """
    if profile.protocols is not None:
        return protocol not in profile.protocols
    if profile.engine is EngineKind.GENERIC:
        if protocol.value not in server_of(profile).routes:
            return True
        # the description of a known server is of one version, and the profile's may be older
        return False if profile.server and "routes" in profile.server.model_fields_set else None
    since = adapter_of(profile).speaks_since
    if protocol not in since:
        return None
    first, found = since[protocol], version_of(version or profile.engine_version)
    if first is None:
        return True
    return None if found is None else found < first
