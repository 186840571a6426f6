"""Where `sparkdash web` serves the dashboard, and who may open it."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple
from urllib.parse import urlsplit

from sparkdash.errors import ProfileError, SparkdashError
from sparkdash.keyring import Key, Keyring, Keys, Scope, keys_file, matching
from sparkdash.listen import Tls
from sparkdash.settings import Settings, load_settings


class Place(NamedTuple):
    """Host, port, and the TLS context where the connection is https."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None


MOST_SESSIONS = 4
"""Tabs at once: each is a process of 65 MB."""
TOKEN_BYTES = 32


class Visit(Enum):
    """Answer to a request: let it in, hand it the cookie, or the reason of a refusal."""

    WELCOME = "welcome"
    GIVE_COOKIE = "the address has the token: the cookie is handed out"
    WRONG_HOST = "The address is not this box's: open the one that `sparkdash web` printed."
    WRONG_ORIGIN = "A page of another address asked for the dashboard."
    NO_TOKEN = "The token is missing or old: open the address that `sparkdash web` printed last."  # noqa: S105
    NO_KEY = "Open the first page of this address and type a key."
    FULL = f"{MOST_SESSIONS} tabs are open, which is the limit. Close one and load this page again."


class VisitorCheck:
    """Checks of a server on loopback. `token` stands in the address, `cookie` in the browser."""

    scheme = "http"
    invitation = "Open this address in a browser on this box. Ctrl-C ends it."

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self.cookie = secrets.token_urlsafe(TOKEN_BYTES)
        self.sessions = 0

    def check(self, host: str, origin: str | None, *, token: str | None, cookie: str | None, upgrades: bool) -> Visit:
        """Check a request by its headers. `upgrades`: it asks for the WebSocket, which begins a session."""
        if not self._is_own(host):
            return Visit.WRONG_HOST
        if origin != f"{self.scheme}://{host}" and (upgrades or origin is not None):  # pages that are opened send none
            return Visit.WRONG_ORIGIN
        visit = self._known(None if upgrades else token, cookie)
        if visit is Visit.WELCOME and upgrades and self.sessions >= MOST_SESSIONS:
            return Visit.FULL
        return visit

    def is_welcome(self, cookie: str | None) -> bool:
        return _same(cookie, self.cookie)

    def _known(self, token: str | None, cookie: str | None) -> Visit:
        if token is not None:
            return Visit.GIVE_COOKIE if _same(token, self.token) else Visit.NO_TOKEN
        return Visit.WELCOME if self.is_welcome(cookie) else Visit.NO_TOKEN

    def _is_own(self, host: str) -> bool:
        return _is_loopback(_hostname(host))


class KeyedVisitorCheck(VisitorCheck):
    """Checks of a server beyond loopback. `keys` returns the keys of now, `clock` Unix seconds; the box has `names`."""

    invitation = "Open this box's name or address, and this port, in a browser. It asks for a key. Ctrl-C ends it."

    def __init__(
        self, keys: Callable[[], Iterable[Key]], clock: Callable[[], float], names: Iterable[str], scheme: str
    ) -> None:
        super().__init__()
        self.scheme = scheme
        self._keys = keys
        self._clock = clock
        self._names = frozenset(name.lower() for name in names)
        self._visitors: dict[str, Key] = {}
        """Key of each browser, by cookie."""

    def let_in(self, secret: str) -> str | None:
        """Return a cookie for the key with this secret; None for a key that may not see the whole box."""
        keys = [key for key in self._keys() if opens_dashboard(key, self._clock())]
        key = matching(keys, secret)
        if key is None:
            return None
        cookie = secrets.token_urlsafe(TOKEN_BYTES)
        self._visitors = {known: each for known, each in self._visitors.items() if each in keys}
        self._visitors[cookie] = key
        return cookie

    def is_welcome(self, cookie: str | None) -> bool:
        key = self._visitors.get(cookie or "")
        return key is not None and opens_dashboard(key, self._clock()) and key in self._keys()

    def _known(self, token: str | None, cookie: str | None) -> Visit:  # noqa: ARG002 - an address has none
        return Visit.WELCOME if self.is_welcome(cookie) else Visit.NO_KEY

    def _is_own(self, host: str) -> bool:
        name = _hostname(host)
        return _is_loopback(name) or name in self._names or _is_address(name)


def opens_dashboard(key: Key, now: float) -> bool:
    """Whether the key is good for all that the dashboard shows and does."""
    return Scope.CONTROL in key.scopes and not key.models and not key.has_expired(now)


def _same(given: str | None, wanted: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _hostname(host: str) -> str:
    """Return the name in a Host header, whose port may be any, as `ssh -L` may have another one."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)


def place_of(host: str, port: int) -> tuple[Place, VisitorCheck]:
    """Return the address to serve at, and the check of its visitors.

    Raises:
        ProfileError: `keys_needed`: no key opens the dashboard beyond loopback; or the settings are wrong.
        HostError: the TLS files cannot be used.
    """
    settings = load_settings(host=host)
    if not settings.beyond_loopback:
        return Place("127.0.0.1" if host == "localhost" else host, port), VisitorCheck()
    keys = Keyring(keys_file())
    if not any(opens_dashboard(key, time.time()) for key in keys.look()):
        raise ProfileError(
            f"sparkdash would show the dashboard to everybody who can reach {host}: no key opens it yet.",
            code="keys_needed",
            hint="Make one with `sparkdash keys add NAME --scope control`, or stay on 127.0.0.1 and use `ssh -L`.",
        )
    tls = _tls(settings)
    box = socket.gethostname()
    names = (box, f"{box}.local", *settings.host_names)
    return Place(host, port, tls), KeyedVisitorCheck(
        lambda: _keys_now(keys), time.time, names, "https" if tls else "http"
    )


def _keys_now(keyring: Keyring) -> Keys:
    """Return the keys of now; the last ones that could be read of a file that is damaged since."""
    try:
        return keyring.look()
    except SparkdashError:
        return keyring.last


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    files = Tls(settings.tls_cert.expanduser(), settings.tls_key.expanduser())
    files.check()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.cert, files.key)
    return context
