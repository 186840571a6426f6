"""Which protocols an engine speaks, as far as that is known without asking it. Pure.

Owns: the answer, out of what a profile says and what is known of an engine's versions.
"""

from __future__ import annotations

from sparkdash.domain.profile import ApiProtocol, Profile
from sparkdash.engines.registry import adapter
from sparkdash.engines.versions import version_of


def lacks(profile: Profile, version: str | None, protocol: ApiProtocol) -> bool | None:
    """Does its engine not speak this protocol? None: only the engine knows.

    `version` is the engine's own word for it; the profile's stands in.
    """
    if profile.protocols is not None:
        return protocol not in profile.protocols
    since = adapter(profile.engine).speaks_since
    if protocol not in since:
        return None
    first, found = since[protocol], version_of(version or profile.engine_version)
    if first is None:
        return True
    return None if found is None else found < first
