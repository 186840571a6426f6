"""URLs of servers, as people type them: which of them anybody could be asked at, and how one is shown.

Owns: those two answers. Must not know: who is asked there. Pure; the standard library alone, as one-shot commands read it.
Rule: a name and a password before the host are never shown.
"""

from __future__ import annotations

from urllib.parse import urlsplit

SCHEMES = frozenset({"http", "https"})


def is_server(url: str) -> bool:
    """Could a server be asked there? http or https, a host that a network may have, a port that there is, and neither a
    query nor a fragment nor a space."""
    try:
        parts = urlsplit(url)
        wrong = parts.port == 0  # asking for the port is what reads it
        (parts.hostname or "").encode("idna")
    except ValueError:  # brackets without an end, no port at all, or a name that no network has
        return False
    whole = not (parts.query or parts.fragment) and url.isprintable() and " " not in url
    return parts.scheme in SCHEMES and bool(parts.hostname) and whole and not wrong


def has_login(url: str) -> bool:
    """Is there a name, or a password, before the host of such a URL?"""
    return "@" in urlsplit(url).netloc


def shown(url: str) -> str:
    """The URL without what stands before an `@`, also where it is no URL at all."""
    scheme, slashes, _ = url.rpartition("@")[0].partition("://")
    return f"{scheme if slashes else ''}{slashes}***@{url.rpartition('@')[2]}" if "@" in url else url
