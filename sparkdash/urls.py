"""URLs of servers, as people type them: whether a URL can be a server's, and how it is shown.

Owns: those two answers. Must not know: who is asked there. Rule: a name and a password before the host are never
shown. The standard library alone, as one-shot commands load this.

Pure.
"""

from __future__ import annotations

from urllib.parse import urlsplit

SCHEMES = frozenset({"http", "https"})


def is_server(url: str) -> bool:
    """Return whether a server can be at this URL.

    It has http or https, a host that a network may have, an existing port, and no query, fragment or space.
    """
    try:
        parts = urlsplit(url)
        wrong = parts.port == 0  # asking for the port is what reads it
        (parts.hostname or "").encode("idna")
    except ValueError:  # brackets without an end, no port at all, or a name that no network has
        return False
    whole = not (parts.query or parts.fragment) and url.isprintable() and " " not in url
    return parts.scheme in SCHEMES and bool(parts.hostname) and whole and not wrong


def has_login(url: str) -> bool:
    """Return whether a URL contains a login before its host."""
    return "@" in urlsplit(url).netloc


def shown(url: str) -> str:
    """Return the URL without what stands before an `@`, even where it is no URL at all."""
    scheme, slashes, _ = url.rpartition("@")[0].partition("://")
    return f"{scheme if slashes else ''}{slashes}***@{url.rpartition('@')[2]}" if "@" in url else url
