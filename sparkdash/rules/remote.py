"""Rules about remote services: data that would leave this box unencrypted.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.rules.rule import Hit, Rule, Severity

NEAR = frozenset({"localhost", "127.0.0.1", "::1"})


def _in_clear(profile: Profile) -> Iterator[Hit]:
    address = urlsplit(profile.url or "")
    if profile.key_env and address.scheme == "http" and address.hostname not in NEAR:
        yield Hit(("url",), "sends the key and every prompt in clear text", "Write https://, or go through `ssh -L`.")


RULES = (
    Rule(
        "remote-in-clear",
        Severity.WARNING,
        "a remote service with a key is reached over http",
        "RFC 6750, section 5.3: bearer tokens only over TLS",
        _in_clear,
        engines=(EngineKind.REMOTE,),
    ),
)
