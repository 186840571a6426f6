"""Remote: what differs for a remote service from an engine of this box.

Owns: which headers leave this box, the URL there, and which answers are reworded: a 401 passed on would send people to
look for the fault in their key for this gateway.

Pure.
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
"""Upper limit of a remote Retry-After; a longer one is a mistake, or no number."""
_LEAVES = frozenset({b"content-type", b"accept"})
"""Headers of a client that leave this box. The others tell who it is and what it runs on."""
_KEY = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_PASSES = frozenset(
    {
        HTTPStatus.PAYMENT_REQUIRED,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
"""Statuses, besides 5xx, after which another profile may do better. A 400 is the request's own fault."""


def is_remote(profile: Profile) -> bool:
    """Whether the profile is a remote service."""
    return profile.engine is EngineKind.REMOTE


def remote_url(profile: Profile, url: str, path: str) -> str:
    """Build the URL of a path; a remote base URL already ends with the counterpart of /v1."""
    base = url.rstrip("/")
    return base + (path.removeprefix("/v1") if is_remote(profile) else path)


def headers_for_remote(given: HeaderPairs, own: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    """Choose the client's headers for a remote service, and add our `own`."""
    ours = ((name.encode("latin-1"), value.encode("latin-1")) for name, value in own.items())
    return (*(pair for pair in given if pair[0].lower() in _LEAVES), *ours)


def is_reworded(status: int, *, others: bool) -> bool:
    """Whether the answer is reworded rather than passed on. `others`: there are fallbacks."""
    return status in _KEY or (others and (status in _PASSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR))


def remote_refusal(
    profile: Profile, status: int, body: bytes, own: Mapping[str, str], retry_after: str | None
) -> HostError:
    """Reword a remote service's refusal, without our key should the service have repeated it."""
    for secret in own.values():
        body = body.replace(secret.removeprefix("Bearer ").encode("latin-1"), b"***")
    words = engine_error_text(body)
    where = urlsplit(profile.url or "").netloc
    if status in _KEY:
        key = f"the key in {profile.key_env}" if profile.key_env else "a request without a key"
        name = profile.key_env or "`key_env` in the profile"
        hint = f"Set {name} right where the daemon is started, and start it again."
        return HostError(
            f"{profile.name}: {where} refused {key} ({status}: {words}).",
            code="remote_refused_key",
            status=HTTPStatus.BAD_GATEWAY,
            hint=hint,
        )
    again = min(float(retry_after), AGAIN_MOST_S) if retry_after and retry_after.isdecimal() else None
    text = f"{profile.name}: {where} answered {status}: {words}"
    return HostError(text, code=REMOTE_REFUSED, status=status, retry_after=again)
