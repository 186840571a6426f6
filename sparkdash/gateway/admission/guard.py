"""Guard: which web pages may speak to the gateway, and under which names it answers.

Owns: the ways in which a page could reach it all the same: a name that is made to resolve to this box (so Host is
checked), and a form or a script that posts across sites (so Origin and the content type are). Pure.
Rule: an editor's or an app's own pages may ask the engines, by an allow-list; no foreign page ever reaches /api.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from urllib.parse import urlsplit

from sparkdash.errors import AdmissionError
from sparkdash.gateway.http.headers import HeaderList, RequestHeaders
from sparkdash.gateway.protocol.route import is_control
from sparkdash.limits import HEADERS, URL

APPS = ("vscode-webview://*", "app://*", "tauri://localhost", "http://tauri.localhost", "https://tauri.localhost")
"""Origins of pages that are parts of programs: VS Code's, Electron's by custom, Tauri's (on Windows the last two: an app there
comes through `ssh -L`)."""
FROM_CONTAINERS = ("host.docker.internal", "host.containers.internal")
"""What docker and podman call this box inside a container. Nobody can own a name under .internal, so no page can have one."""
PREFLIGHT_S = 600
"""How long a browser may keep the answer to a preflight. Chrome's own limit is 7200."""


@dataclass(frozen=True, slots=True)
class OriginPolicy:
    """What the gateway is called, and by whose pages; `localhost` and its kin always are."""

    names: tuple[str, ...] = ()
    """Further host names."""
    beyond: bool = False
    """It listens beyond loopback: addresses are names of it too, as no page can rebind an address."""
    origins: tuple[str, ...] = ()
    """Further origins, `*` allowed: https://chat.example, chrome-extension://*."""


@lru_cache(maxsize=64)
def is_loopback(name: str) -> bool:
    """Is it this box's own loopback: an address of it, or its one name?"""
    if name in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_page(headers: RequestHeaders, policy: OriginPolicy, *, path: str, unix: bool) -> HeaderList:
    """What every answer must say besides, so that the page that asks may read it; nothing where a program does.

    `unix`: it came through the unix socket, which no web page can open.

    Raises:
        AdmissionError: it is neither a program, nor a page that may ask.
    """
    host, origin = headers.get(b"host") or "", headers.get(b"origin")
    if not unix:
        _check_host(host, policy)
    if origin is not None:
        if is_control(path):
            _check_same_origin(origin, host)
        else:
            _check_origin(origin, policy)
    return [] if origin is None else _granted(origin)


def check_size(url: int, headers: int) -> None:
    """Refuse a request with too long an address or too many headers, before anything reads them.

    Raises:
        AdmissionError: 414 `url_too_long`; 431 `too_many_headers`.
    """
    if url > URL:
        raise AdmissionError(
            f"The request's path and query have {url} characters.",
            code="url_too_long",
            status=414,
            hint=f"At most {URL} are read.",
        )
    if headers > HEADERS:
        raise AdmissionError(
            f"The request has {headers} headers.",
            code="too_many_headers",
            status=431,
            hint=f"At most {HEADERS} are read.",
        )


def is_preflight(headers: RequestHeaders, method: str) -> bool:
    """Does a browser only ask whether it may ask? (Fetch standard, section 4.8.)"""
    return method == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers


def preflight(headers: RequestHeaders) -> HeaderList:
    """The answer for an origin that `check` let pass: every method, and whatever headers it wants to send."""
    asked = headers.get(b"access-control-request-headers")
    found: HeaderList = [
        (b"access-control-allow-methods", (headers.get(b"access-control-request-method") or "").encode("latin-1")),
        (b"access-control-max-age", b"%d" % PREFLIGHT_S),
    ]
    if asked:
        found.append((b"access-control-allow-headers", asked.encode("latin-1")))
    if headers.get(b"access-control-request-private-network") == "true":
        found.append((b"access-control-allow-private-network", b"true"))
    return found


def _granted(origin: str) -> HeaderList:
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"retry-after, x-request-id"),
        (b"vary", b"origin"),
    ]


def _check_host(host: str, policy: OriginPolicy) -> None:
    name = _hostname(f"//{host}")
    if host and not (is_loopback(name) or name in policy.names or (policy.beyond and _is_address(name))):
        raise AdmissionError(
            f"The gateway was called {host[:80]!r}, which is none of its names.",
            code="host_refused",
            status=403,
            hint="Use http://127.0.0.1 and its port; from another box, through `ssh -L`, or name it in host_names of config.toml.",
        )


def _check_origin(origin: str, policy: OriginPolicy) -> None:
    """Programs send none."""
    if origin.startswith(("http://", "https://")) and is_loopback(_hostname(origin)):
        return
    if not any(fnmatchcase(origin, pattern) for pattern in (*APPS, *policy.origins)):
        raise AdmissionError(
            f"A web page of {origin[:80]!r} asked the gateway, which serves this box's own programs.",
            code="origin_refused",
            status=403,
            hint="If it is yours, name it in allowed_origins of config.toml.",
        )


def _check_same_origin(origin: str, host: str) -> None:
    """No page is served from here, so that only a browser with /api itself in its address bar has this origin."""
    if origin not in (f"http://{host}", f"https://{host}"):
        raise AdmissionError(
            f"A web page of {origin[:80]!r} asked the control API, which no page may.",
            code="origin_refused",
            status=403,
        )


def check_json(content_type: str) -> None:
    """Refuse a body that is not JSON: a web page's form can post such a body across sites without a preflight request.

    Raises:
        AdmissionError: code `not_json`, status 415.
    """
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise AdmissionError(
            f"The control API takes JSON, not {content_type[:80]!r}.",
            code="not_json",
            status=415,
            hint="Send Content-Type: application/json, and {} when there is nothing to say.",
        )


@lru_cache(maxsize=64)
def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
