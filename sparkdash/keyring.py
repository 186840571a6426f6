"""Keyring: the file of keys, `keys.json` in the config folder, which only its owner may read."""

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field, ValidationError

from sparkdash import paths
from sparkdash.domain.base import Frozen
from sparkdash.errors import AdmissionError, ProfileError, writing
from sparkdash.paths import lock_file, read_small_file, replace_file
from sparkdash.units import MIB

PREFIX = "sk-sparkdash-"
"""Begins with `sk-`, as some clients require; the rest lets a scanner of repositories name the origin."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
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

    A date means its first second, in local time. Raises ValueError, also for a time that has passed.
    """
    if found := _SPAN.fullmatch(text.strip().lower()):
        return now + int(found[1]) * _UNIT_S[found[2]]
    ends = datetime.fromisoformat(text.strip()).timestamp()
    if ends <= now:
        raise ValueError("it has passed")
    return ends


def new_secret() -> str:
    """Make a secret of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


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


FILE_NAME = "keys.json"
GONE_S = 0.5
"""Absence of the file after which its keys no longer count: some editors remove the file for a moment, and without keys
every client would be let in.
"""

Keys = tuple[Key, ...]


class _File(Frozen):
    version: int = 1
    keys: Keys = ()


def keys_file() -> Path:
    return paths.config_dir() / FILE_NAME


class Keyring:
    """Keys of one file, read again after each change."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._name = str(path)
        self._clock = clock
        self._seen: tuple[int, ...] | None = None
        self._again = False
        """Whether to read the file again although its stat is unchanged."""
        self._gone_at: float | None = None
        """Time when the file was first missed; None while it exists, and once its absence counts."""
        self._keys: Keys = ()

    def look(self) -> Keys:
        """Return the current keys; costs one `stat` if the file is unchanged.

        Raises:
            ProfileError: the file has become invalid; raised once, and the earlier keys stay until the next change. A
                file that only cannot be read (no descriptor is left) is tried again with each call.
        """
        seen = _mark(self._name)
        if seen != self._seen or self._again:
            told, self._seen, self._again = seen == self._seen, seen, False
            try:
                self._take(_read(self._path))
            except OSError as error:
                self._again = True
                if not told:
                    raise _unreadable(self._path, error) from None
        return self._keys

    def _take(self, found: Keys | None) -> None:
        if found is None and self._keys:
            now = self._clock()
            self._gone_at = now if self._gone_at is None else self._gone_at
            self._again = now - self._gone_at < GONE_S
            if self._again:
                return
        self._gone_at = None
        self._keys = found or ()

    @property
    def last(self) -> Keys:
        return self._keys


def read_keys(path: Path) -> Keys:
    """Read the keys in this file; none if it does not exist. Raises ProfileError `keys_invalid`."""
    try:
        return _read(path) or ()
    except OSError as error:
        raise _unreadable(path, error) from None


def _read(path: Path) -> Keys | None:
    """Read the keys; None without a file. Raises ProfileError for an invalid or exposed file, and OSError."""
    try:
        mode = path.stat().st_mode
        text = read_small_file(path)
    except FileNotFoundError:
        return None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unusable(f"Others may write to {path}, and could give themselves keys.", f"chmod 600 {path}")
    try:
        return _File.model_validate_json(text).keys
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise _unusable(f"{path} is no list of keys: {where}: {first['msg']}.") from None


def add_key(path: Path, key: Key) -> None:
    """Add a key to the file.

    Raises:
        AdmissionError: code `key_exists`: another key has that name.
        ProfileError, HostError: the file cannot be read or written.
    """

    def with_it(keys: Keys) -> Keys:
        if any(each.name == key.name for each in keys):
            raise AdmissionError(
                f"There is a key {key.name!r} already.",
                code="key_exists",
                hint=f"Revoke it first (`sparkdash keys revoke {key.name}`), or choose another name.",
            )
        return (*keys, key)

    _change(path, with_it)


def revoke_key(path: Path, name: str) -> Keys:
    """Remove a key from the file; return the remaining keys.

    Raises:
        AdmissionError: code `key_not_found`.
        ProfileError, HostError: the file cannot be read or written.
    """

    def without_it(keys: Keys) -> Keys:
        left = tuple(each for each in keys if each.name != name)
        if len(left) == len(keys):
            raise AdmissionError(
                f"There is no key {name!r}.", code="key_not_found", hint="`sparkdash keys list` shows them."
            )
        return left

    return _change(path, without_it)


def _change(path: Path, to: Callable[[Keys], Keys]) -> Keys:
    with writing(path, "keys_not_written"), lock_file(path):
        keys = to(read_keys(path))
        replace_file(path, _File(keys=keys).model_dump_json(indent=2).encode() + b"\n")
    return keys


def _mark(path: str) -> tuple[int, ...]:
    """Stat values that differ after each change of the file; empty without a file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - with every request, and half as dear as Path.stat
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode)


def _unreadable(path: Path, error: OSError) -> ProfileError:
    return _unusable(f"{path} cannot be read: {error.strerror}.")


def _unusable(
    what: str, hint: str = "Correct it, or move it away and make new keys with `sparkdash keys add`."
) -> ProfileError:
    return ProfileError(what, code="keys_invalid", hint=hint)


LIMIT = 8 * MIB
"""Size at which the file becomes `audit.jsonl.old`, so that twice as much is kept."""


def audit_file() -> Path:
    return paths.state_dir() / "audit.jsonl"


def append_entry(path: Path, entry: Mapping[str, object], *, limit: int = LIMIT) -> None:
    """Append one line; blocks for a write. Raises OSError."""
    line = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)
    try:
        os.write(descriptor, line)  # one write, so that lines of two processes do not mix
        if os.fstat(descriptor).st_size > limit:
            path.replace(path.with_name(f"{path.name}.old"))
    finally:
        os.close(descriptor)
