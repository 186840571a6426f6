"""Known servers by kind, and the whole description of a profile's server.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sparkdash.domain.profile import Profile
from sparkdash.domain.servers.spec import ServerKind, ServerSpec
from sparkdash.servers.known_server import KnownServer
from sparkdash.servers.language import LANGUAGE
from sparkdash.servers.pictures import PICTURES
from sparkdash.servers.sound import SOUND
from sparkdash.servers.vectors import VECTORS

KNOWN: Mapping[ServerKind, KnownServer] = MappingProxyType({**LANGUAGE, **VECTORS, **SOUND, **PICTURES})


def known_server(profile: Profile) -> KnownServer | None:
    """Return the known server that the profile names; None for any other."""
    return KNOWN.get(profile.server.kind) if profile.server and profile.server.kind else None


def server_of(profile: Profile) -> ServerSpec:
    """Return the description of the profile's server: its own keys over those of the known server."""
    own, known = profile.server or ServerSpec(), known_server(profile)
    if known is None:
        return own
    return known.spec.replace(**{key: getattr(own, key) for key in own.model_fields_set})
