"""Access: identifies the caller of a request, and applies the limits of its key."""

import asyncio
import ipaddress
import os
import sys
from collections import deque
from collections.abc import Callable
from copy import copy
from functools import cached_property
from pathlib import Path

from sparkdash.catalog.catalog import Catalog
from sparkdash.domain.profile import AUTO, Profile, ProfileSummary, base_name
from sparkdash.domain.request import Task
from sparkdash.domain.state import Snapshot
from sparkdash.errors import AdmissionError, EngineError, SparkdashError
from sparkdash.gateway.http.exchange import ParsedHead
from sparkdash.gateway.http.headers import RequestHeaders
from sparkdash.gateway.protocol.route import METRICS, is_control
from sparkdash.keyring import Key, Keyring, Scope, matching
from sparkdash.log import LOG
from sparkdash.units import counted

READ = ("GET", "HEAD")
ALIVE = frozenset({"/health", "/v1/health", "/ping", "/", "/api/hello"})
"""Routes by which clients see whether the gateway is up: always 200, whatever the engines do."""


def scope_of(path: str) -> Scope | None:
    """Look up the scope that a key needs for the route of that (decoded) path; None: no key is needed."""
    if path in ALIVE:
        return None
    if path.rstrip("/") == METRICS:
        return Scope.METRICS
    return Scope.CONTROL if is_control(path) else Scope.INFERENCE


MINUTE_S = 60.0
DAY_S = 86400.0
BEARER = "bearer "
_KEY_PROTOCOL = "openai-insecure-api-key."
_BETA_PROTOCOL = "openai-beta."


class AccessControl:
    """Identifies and limits callers; one per gateway.

    `keys`: None where no keys can exist, as in the demo. `beyond`: the gateway is reachable from other boxes, so a key
    is needed even while none exists. `used_today`: tokens that the key of that name has used since midnight UTC.
    """

    def __init__(
        self,
        keys: Keyring | None,
        *,
        beyond: bool,
        used_today: Callable[[str], int],
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._keys = keys
        self._beyond = beyond
        self._used_today = used_today
        self._clock = clock
        self._monotonic = monotonic
        self._looked: tuple[Key, ...] = ()
        self._looked_at = -1.0
        """Time of the last look, by the loop's clock."""
        self._recent: dict[str, deque[float]] = {}
        """Times of each limited key's requests in the last minute, by key name."""

    def key_of(self, head: ParsedHead) -> Key | None:
        """Find the caller's key, once per head until the keys change; None where none is needed.

        The unix socket needs no key: only its owner can open it.

        Raises:
            AdmissionError: code `key_missing` or `invalid_api_key`; status 401.
        """
        if head.unix:
            return None
        keys = self._now()
        if not keys and not self._beyond:
            return None
        if head.key_memo is None or head.key_memo[0] is not keys:
            head.key_memo = keys, _known(keys, head.headers)
        return head.key_memo[1]

    def admit(self, key: Key, scope: Scope, *, counts: bool) -> None:
        """Admit a request of this key to a route of that scope now; who may control may also read the metrics.

        `counts`: it is work for an engine, within the key's limits.

        Raises:
            AdmissionError: 401 `key_expired`; 403 `scope_refused`, `whole_box_refused`; 429 with Retry-After:
                `key_requests_used_up`, `key_tokens_used_up`.
        """
        if key.has_expired(self._clock()):
            raise AdmissionError(
                f"The key {key.name!r} has expired.",
                code="key_expired",
                status=401,
                hint=(
                    f"On the box: `sparkdash keys revoke {key.name}`, "
                    f"and `sparkdash keys add {key.name}` for a new one."
                ),
            )
        refuse_scope(key, scope)
        if counts:
            self._within_tokens(key)
            self._within_requests(key)

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def _now(self) -> tuple[Key, ...]:
        """Return the keys. The file is checked once for all requests of one moment of the loop's clock."""
        if self._keys is not None and (now := self._loop.time()) != self._looked_at:
            self._looked, self._looked_at = _look(self._keys), now
        return self._looked

    def _within_tokens(self, key: Key) -> None:
        if key.tokens_per_day is None or self._used_today(key.name) < key.tokens_per_day:
            return
        raise AdmissionError(
            f"The key {key.name!r} has used its {key.tokens_per_day} tokens of today.",
            code="key_tokens_used_up",
            status=429,
            retry_after=DAY_S - self._clock() % DAY_S,
            hint="The next day begins at midnight UTC.",
        )

    def _within_requests(self, key: Key) -> None:
        if key.requests_per_minute is None:
            return
        now = self._monotonic()
        recent = self._recent.setdefault(key.name, deque())
        while recent and now - recent[0] >= MINUTE_S:
            recent.popleft()
        if len(recent) >= key.requests_per_minute:
            raise AdmissionError(
                f"The key {key.name!r} has made its {counted(key.requests_per_minute, 'request')} of this minute.",
                code="key_requests_used_up",
                status=429,
                retry_after=MINUTE_S - (now - recent[0]),
            )
        recent.append(now)


def refuse_scope(key: Key, scope: Scope) -> None:
    """Refuse what a key is not for. Raises AdmissionError: 403 `scope_refused`, `whole_box_refused`."""
    if scope not in key.scopes and not (scope is Scope.METRICS and Scope.CONTROL in key.scopes):
        raise AdmissionError(
            f"The key {key.name!r} is for {' and '.join(key.scopes)}, not for {scope}.",
            code="scope_refused",
            status=403,
            hint=f"`sparkdash keys add NAME --scope {scope}` makes such a key.",
        )
    if key.models and scope is not Scope.INFERENCE:
        raise AdmissionError(
            f"The key {key.name!r} is for inference on some models, not for {scope}.",
            code="whole_box_refused",
            status=403,
            hint=f"{_models_of(key)} A key without --models may have the scope {scope}.",
        )


Address = tuple[str, int | None] | None
_MAPPED = "0000000000000000FFFF0000"
"""Beginning of an IPv4 address in the kernel's table of IPv6 connections."""


def refuse_other_users(client: Address, server: Address) -> None:
    """Refuse a request over TCP, without a key, of any user but the daemon's own and root; blocks for milliseconds.

    Raises:
        AdmissionError: code `not_the_owner`, status 403.
    """
    uid = peer_uid(client, server)
    if uid not in (os.geteuid(), 0):
        raise AdmissionError(
            f"The control API is for the user who runs sparkdash; user {'unknown' if uid is None else uid} asked.",
            code="not_the_owner",
            status=403,
            hint="Ask as that user, or with a key: `sparkdash keys add NAME --scope control` makes one.",
        )


def peer_uid(client: Address, server: Address) -> int | None:
    """Find the user of a connection's other end on this box, in the kernel's tables; None: it is not there.

    The kernel shows the end of a program that has closed it as root's, with the inode 0: that end has no user.
    """
    if client is None or server is None:
        return None
    ends = [(_hex(client[0]), _hex(server[0]))]
    ends += [(_MAPPED + one, _MAPPED + other) for one, other in ends if len(one) == len(other) == 8]
    for table in ("tcp", "tcp6"):
        try:
            text = Path("/proc/net", table).read_text("ascii")
        except OSError:
            continue
        for one, other in ends:
            at = text.find(f" {one}:{client[1]:04X} {other}:{server[1]:04X} ")
            if at >= 0:
                _, _, _, _, _, _, uid, _, inode, *_ = text[at:].split(maxsplit=9)
                return int(uid) if inode != "0" else None
    return None


def _hex(host: str) -> str:
    """Write an address as the kernel does: words of four bytes, each in the byte order of the machine."""
    raw = ipaddress.ip_address(host.partition("%")[0]).packed
    return "".join(f"{int.from_bytes(raw[at : at + 4], sys.byteorder):08X}" for at in range(0, len(raw), 4))


def key_check(key: Key | None, keys: Keyring | None, clock: Callable[[], float]) -> Callable[[], bool]:
    """Return a check whether this key, as it was when it was admitted, is still good; always True without a key.

    For answers without an end: a key is otherwise looked at once, when its request comes.
    """
    if key is None or keys is None:
        return lambda: True
    return lambda: not key.has_expired(clock()) and key in _look(keys)


def _known(keys: tuple[Key, ...], headers: RequestHeaders) -> Key:
    given = _presented(headers)
    for secret in given:
        if key := matching(keys, secret):
            return key
    if given:
        raise AdmissionError(
            "The key of this request is unknown or was revoked.",
            code="invalid_api_key",
            status=401,
            hint="On the box, `sparkdash keys list` lists the keys, and `sparkdash keys add NAME` makes one.",
        )
    raise AdmissionError(
        "This gateway needs a key, and the request has none.",
        code="key_missing",
        status=401,
        hint="Send it as `Authorization: Bearer KEY`; on the box, `sparkdash keys add NAME` makes one.",
    )


def _look(keys: Keyring) -> tuple[Key, ...]:
    try:
        return keys.look()
    except SparkdashError as error:
        LOG.warning("the keys cannot be read; the last ones read stay valid", why=error.text())
        return keys.last


def permitted_name(
    key: Key | None, name: str, catalog: Catalog, state: Callable[[], Snapshot], task: Task | None = Task.GENERATE
) -> str:
    """Return the name that the supervisor is asked for when a key asks for `name`; a key that may use all models gets
    `name` itself.

    For a key for some models, `auto` becomes the name of the running one among them that was last used for `task`,
    so that the key never gets another model. `state` is read for that alone.

    Raises:
        AdmissionError: 403 `model_not_allowed`; 404 `model_not_found`.
    """
    if key is None or not key.models:
        return name
    if name == AUTO:
        name = visible_snapshot(key, state()).auto(task) or AUTO
    if name == AUTO or not key.may_use(_names(_found(key, name, catalog))):
        raise AdmissionError(
            f"The key {key.name!r} may not use {name!r}.", code="model_not_allowed", status=403, hint=_models_of(key)
        )
    return name


def _found(key: Key, name: str, catalog: Catalog) -> Profile:
    """Find the profile by name. Raises AdmissionError without the hint, which would name similar profiles."""
    try:
        return catalog.find(name)
    except AdmissionError as error:
        raise AdmissionError(error.message, code=error.code, status=error.status, hint=_models_of(key)) from None


def _models_of(key: Key) -> str:
    return f"It may use: {', '.join(key.models)}."


def may_see(key: Key | None, profile: Profile | ProfileSummary) -> bool:
    return key is None or key.may_use(_names(profile))


def visible_snapshot(key: Key | None, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the profiles and engines that the key may use, for lists of models."""
    if key is None or not key.models:
        return snapshot
    profiles = tuple(one for one in snapshot.profiles if may_see(key, one))
    names = {one.name for one in profiles}
    engines = {name: one for name, one in snapshot.engines.items() if name in names}
    return snapshot.replace(profiles=profiles, engines=engines)


def visible_error(key: Key | None, error: SparkdashError) -> SparkdashError:
    """Return the error as the key may see it: one for some models is not told who else holds memory."""
    if key is None or not key.models:
        return error
    error = copy(error)  # several waiting requests share one
    if isinstance(error, AdmissionError):
        error.holders = None
    elif isinstance(error, EngineError):
        error.evidence = None
    return error


def _names(profile: Profile | ProfileSummary) -> tuple[str, ...]:
    """List the names that a key may grant, not the client's word: `allowed-x/other` means profile `other`."""
    name = base_name(profile.name)
    return (profile.name, name, name.split("/", 1)[0], *profile.serves)


def _presented(headers: RequestHeaders) -> list[str]:
    """List every secret in the request; some clients send two headers, one of them a dummy."""
    found = [(headers.get(name) or "").strip() for name in (b"x-api-key", b"api-key")]
    authorization = (headers.get(b"authorization") or "").strip()
    if authorization[: len(BEARER)].lower() == BEARER:
        found.insert(0, authorization[len(BEARER) :].strip())
    words = _words(headers.get(b"sec-websocket-protocol") or "")
    found += [word.removeprefix(_KEY_PROTOCOL) for word in words if word.startswith(_KEY_PROTOCOL)]
    return [secret for secret in found if secret]


def offered_protocols(header: str) -> list[str]:
    """List the subprotocols that a client offers, without secrets and version marks."""
    return [word for word in _words(header) if word and not word.startswith((_KEY_PROTOCOL, _BETA_PROTOCOL))]


def _words(header: str) -> list[str]:
    return [word.strip() for word in header.split(",")]
