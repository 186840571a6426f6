"""Far: what holds for a service elsewhere and for no engine of this box. Pure.

Owns: what of a request leaves this box, how a path is spelled there, and which of the service's answers the client is told
in our words: a 401 passed on would send people to look for the fault in the key that they have for us.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlsplit

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.errors import HostError
from sparkdash.gateway.http.headers import HeaderPairs
from sparkdash.gateway.protocol.problems import REMOTE_REFUSED
from sparkdash.upstream import engine_error_text

AGAIN_MOST_S = 86400.0
"""No service's Retry-After is passed on beyond a day: what is longer is a slip of its own, and may be no number at all."""
_LEAVES = frozenset({b"content-type", b"accept"})
"""Of a client's headers. The others tell who it is and what it runs on."""
_KEY = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_PASSES = frozenset(
    {
        HTTPStatus.PAYMENT_REQUIRED,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
"""What another profile may do better, beside 500 and above. Not a 400: that is the request's own fault."""


def is_remote(profile: Profile) -> bool:
    """Is it elsewhere?"""
    return profile.engine is EngineKind.REMOTE


def remote_url(profile: Profile, url: str, path: str) -> str:
    """Where a path with /v1 is asked for. A service's base URL ends with what stands there for /v1."""
    base = url.rstrip("/")
    return base + (path.removeprefix("/v1") if is_remote(profile) else path)


def headers_for_remote(given: HeaderPairs, own: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    """The client's headers for a service elsewhere, and our `own`."""
    ours = ((name.encode("latin-1"), value.encode("latin-1")) for name, value in own.items())
    return (*(pair for pair in given if pair[0].lower() in _LEAVES), *ours)


def is_reworded(status: int, *, others: bool) -> bool:
    """Is this answer told in our words rather than passed on? `others`: there are fallbacks."""
    return status in _KEY or (others and (status in _PASSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR))


def remote_refusal(
    profile: Profile, status: int, body: bytes, own: Mapping[str, str], retry_after: str | None
) -> HostError:
    """Such an answer, without the key, should the service have repeated it."""
    for secret in own.values():
        body = body.replace(secret.removeprefix("Bearer ").encode("latin-1"), b"***")
    words = engine_error_text(body)
    where = urlsplit(profile.url or "").netloc
    if status in _KEY:
        key = f"the key in {profile.key_env}" if profile.key_env else "a request without a key"
        hint = f"Set {profile.key_env or '`key_env` in the profile'} right where the daemon is started, and start it again."
        return HostError(
            f"{profile.name}: {where} refused {key} ({status}: {words}).",
            code="remote_refused_key",
            status=HTTPStatus.BAD_GATEWAY,
            hint=hint,
        )
    again = min(float(retry_after), AGAIN_MOST_S) if retry_after and retry_after.isdecimal() else None
    told = f"{profile.name}: {where} answered {status}: {words}"
    return HostError(told, code=REMOTE_REFUSED, status=status, retry_after=again)
