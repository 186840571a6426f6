"""Keys: named secrets with their rights and limits.

Rule: the secret itself exists only where it is made and shown, once; everywhere else its digest is used. The digest
is plain SHA-256: a slow hash (bcrypt, argon2) protects secrets that can be guessed, which 256 random bits cannot. It
would cost milliseconds with every request.

Pure.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase

from pydantic import Field

from sparkdash.domain.base import Frozen

PREFIX = "sk-sparkdash-"
"""Begins with `sk-`, as some clients require; the rest lets a scanner of repositories name the origin."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
RANDOM_BYTES = 32
_SPAN = re.compile(r"([1-9]\d{0,4})([mhdw])")
_UNIT_S = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class Scope(StrEnum):
    """Side of the gateway that a key may use."""

    INFERENCE = "inference"
    """Routes for clients of models: /v1 and the engines' own paths."""
    CONTROL = "control"
    """Routes of /api: the state, the requests, and every change."""
    METRICS = "metrics"
    """The one page that Prometheus reads; `control` may read it too."""


class Key(Frozen):
    """Named key with its rights and limits; None means no limit."""

    name: str = Field(pattern=NAME)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the secret, in hex."""
    scopes: tuple[Scope, ...] = (Scope.INFERENCE,)
    models: tuple[str, ...] = ()
    """Names of profiles, families or aliases, `*` allowed; all models if empty."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Limit of requests in any 60 seconds."""
    tokens_per_day: int | None = Field(default=None, ge=1)
    """Limit of prompt and completion tokens per day of UTC, by the engines' own counts."""
    batch: bool = False
    """Whether requests of this key yield to others, unless a request says otherwise."""
    autocomplete: bool = False
    """Whether requests of this key stop no engine and wait for none, unless a request says otherwise."""
    created_at: float = 0.0
    """Unix seconds."""
    expires_at: float | None = None
    """Unix seconds from which the key is refused; None: never."""

    def has_expired(self, now: float) -> bool:
        """Whether the key is refused at `now`, Unix seconds."""
        return self.expires_at is not None and now >= self.expires_at

    def may_use(self, names: Iterable[str]) -> bool:
        return not self.models or any(fnmatchcase(name, wanted) for name in names for wanted in self.models)


def expiry(text: str, now: float) -> float:
    """Parse the end of a key's life: `90d`, `12h`, `30m` or `2w` from `now` (Unix seconds), or a day as `2027-03-01`.

    A date means its first second, in local time.

    Raises:
        ValueError: the text is neither, or names a time that has passed.
    """
    if found := _SPAN.fullmatch(text.strip().lower()):
        return now + int(found[1]) * _UNIT_S[found[2]]
    ends = datetime.fromisoformat(text.strip()).timestamp()
    if ends <= now:
        raise ValueError("it has passed")
    return ends


def new_secret() -> str:
    """Make a secret of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def digest(secret: str) -> str:
    """Return the SHA-256 of a secret in hex, which is all that is stored."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def matching(keys: Iterable[Key], presented: str) -> Key | None:
    """Find the key with this secret; compares with every key in constant time, so that timing reveals nothing."""
    asked, found = digest(presented), None
    for key in keys:
        if hmac.compare_digest(key.sha256, asked):
            found = key
    return found
