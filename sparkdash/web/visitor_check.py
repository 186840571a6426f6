"""VisitorCheck: who may open the dashboard in a browser.

Rule 1: a token in the address opens it once; from then on a cookie does, which scripts cannot read.
Rule 2: the name in Host must be loopback's (another name may have been made to resolve to it), and a WebSocket must
come from a page of this address.

Pure.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from enum import Enum
from urllib.parse import urlsplit

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
    FULL = f"{MOST_SESSIONS} tabs are open, which is the limit. Close one and load this page again."


class VisitorCheck:
    """Checks of one server. `token` stands in the address, `cookie` in the browser."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self.cookie = secrets.token_urlsafe(TOKEN_BYTES)
        self.sessions = 0
        """Open tabs."""

    def check(self, host: str, origin: str | None, *, token: str | None, cookie: str | None, upgrades: bool) -> Visit:
        """Check a request by its headers. `upgrades`: it asks for the WebSocket, which begins a session."""
        if not _is_loopback(host):
            return Visit.WRONG_HOST
        if origin != f"http://{host}" and (upgrades or origin is not None):  # pages that are opened send none
            return Visit.WRONG_ORIGIN
        if token is not None and not upgrades:
            return Visit.GIVE_COOKIE if _same(token, self.token) else Visit.NO_TOKEN
        if not _same(cookie, self.cookie):
            return Visit.NO_TOKEN
        return self._session() if upgrades else Visit.WELCOME

    def _session(self) -> Visit:
        return Visit.FULL if self.sessions >= MOST_SESSIONS else Visit.WELCOME


def _same(given: str | None, wanted: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def _is_loopback(host: str) -> bool:
    """Whether a Host header names loopback; any port, as `ssh -L` may have another one."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
