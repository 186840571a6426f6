"""Guard: who may speak to a gateway that listens on loopback.

Owns: the two ways in which a web page could reach it all the same: a name that is made to resolve to 127.0.0.1
(so Host is checked), and a form or a script that posts across sites (so Origin and the content type are). Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from sparkdash.errors import AdmissionError
from sparkdash.gateway.route import is_control


def check(headers: Mapping[str, str], *, method: str, path: str, unix: bool) -> None:
    """Raises AdmissionError when the request does not come from this box's own programs.

    `unix`: it came through the unix socket, which no web page can open.
    """
    if not unix:
        _check_host(headers.get("host", ""))
    _check_origin(headers.get("origin"))
    if method == "POST" and is_control(path):
        _check_json(headers.get("content-type", ""))


def _check_host(host: str) -> None:
    if host and not _is_loopback(_hostname(f"//{host}")):
        raise AdmissionError(
            f"The gateway answers to localhost only, and was called {host[:80]!r}.",
            code="host_refused",
            status=403,
            hint="Use http://127.0.0.1 and its port; from another box, through `ssh -L`.",
        )


def _check_origin(origin: str | None) -> None:
    """Programs send none; IDEs' own pages (vscode-webview://, tauri://) are not web sites."""
    if origin is None or not (origin == "null" or origin.startswith(("http://", "https://"))):
        return
    if not _is_loopback(_hostname(origin)):
        raise AdmissionError(
            f"A web page of {origin[:80]!r} asked the gateway, which serves this box's own programs.",
            code="origin_refused",
            status=403,
        )


def _check_json(content_type: str) -> None:
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise AdmissionError(
            f"The control API takes JSON, not {content_type[:80]!r}.",
            code="not_json",
            status=415,
            hint="Send Content-Type: application/json, and {} when there is nothing to say.",
        )


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    if name in ("localhost", "localhost."):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
