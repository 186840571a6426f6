"""Guard: which web pages may call the gateway, and under which host names it answers.

Rule: an editor's or an app's own pages may call the engines, by an allow-list; no foreign page ever reaches /api. Pure.
"""

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
"""Origins of pages of programs: VS Code, Electron by custom, Tauri (the last two on Windows, through `ssh -L`)."""
FROM_CONTAINERS = ("host.docker.internal", "host.containers.internal")
"""Names of this box inside docker and podman containers. No page can own a name under .internal."""
NO_READERS = [(b"x-content-type-options", b"nosniff"), (b"cross-origin-resource-policy", b"same-origin")]
"""Headers of control answers, by which no other site's page can use them."""
PREFLIGHT_S = 600
"""Seconds for which a browser may cache a preflight answer; Chrome allows at most 7200."""


@dataclass(frozen=True, slots=True)
class OriginPolicy:
    """Host names of the gateway and origins that may call it; loopback names and origins always may."""

    names: tuple[str, ...] = ()
    beyond: bool = False
    """Whether it listens beyond loopback: then addresses are names too, as no page can rebind an address."""
    origins: tuple[str, ...] = ()
    """Patterns of allowed origins, such as https://chat.example or chrome-extension://*."""


@lru_cache(maxsize=64)
def is_loopback(name: str) -> bool:
    if name in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_page(headers: RequestHeaders, policy: OriginPolicy, *, path: str, unix: bool) -> HeaderList:
    """Check host and origin; return the CORS headers for every answer, none for a program.

    `unix`: it came through the unix socket, which no web page can open.

    Raises:
        AdmissionError: it is neither a program, nor a page that may ask.
    """
    host, origin = headers.get(b"host") or "", headers.get(b"origin")
    if not unix:
        _check_host(host, policy)
    own = origin in (None, f"http://{host}", f"https://{host}")
    if is_control(path):
        _check_same_origin(origin, own, headers.get(b"sec-fetch-site"))
    elif origin is not None and not own:
        _check_origin(origin, policy)
    if origin is None:
        return []
    return [
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", b"retry-after, x-request-id"),
        (b"vary", b"origin"),
    ]


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
            hint=f"The limit is {URL}.",
        )
    if headers > HEADERS:
        raise AdmissionError(
            f"The request has {headers} headers.", code="too_many_headers", status=431, hint=f"The limit is {HEADERS}."
        )


def is_preflight(headers: RequestHeaders, method: str) -> bool:
    """Whether this is a CORS preflight request (Fetch standard, section 4.8.)"""
    return method == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers


def preflight(headers: RequestHeaders) -> HeaderList:
    """Build the headers of a preflight answer, for an origin that passed `check_page`."""
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


def _check_host(host: str, policy: OriginPolicy) -> None:
    name = _hostname(f"//{host}")
    if host and not (is_loopback(name) or name in policy.names or (policy.beyond and _is_address(name))):
        raise AdmissionError(
            f"The gateway does not answer to the host name {host[:80]!r}.",
            code="host_refused",
            status=403,
            hint=(
                "Use http://127.0.0.1 and its port; from another box, through `ssh -L`, "
                "or add the name to host_names in config.toml."
            ),
        )


def _check_origin(origin: str, policy: OriginPolicy) -> None:
    """Refuse an origin that is neither local nor allowed. Programs send no Origin header."""
    if origin.startswith(("http://", "https://")) and is_loopback(_hostname(origin)):
        return
    if not any(fnmatchcase(origin, pattern) for pattern in (*APPS, *policy.origins)):
        raise AdmissionError(
            f"A web page of {origin[:80]!r} called the gateway, and its origin is not allowed.",
            code="origin_refused",
            status=403,
            hint="If the page is yours, add its origin to allowed_origins in config.toml.",
        )


def _check_same_origin(origin: str | None, own: bool, site: str | None) -> None:
    """Refuse every page but this origin's own: the gateway's page, or a browser at /api itself.

    `site`: where a browser says that the request comes from; pictures and links have no Origin.
    """
    if not own or site not in (None, "same-origin", "none"):
        raise AdmissionError(
            f"A web page of {(origin or 'another site')[:80]!r} called the control API, which pages may not use.",
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
            hint="Send Content-Type: application/json, and {} as the body when there are no parameters.",
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
