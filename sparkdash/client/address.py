"""Where the daemon is: SPARKDASH_URL, else its unix socket, else its port on loopback.

Owns: that order, and what a daemon that wants a key is shown. Must not know what is asked there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from sparkdash import paths, settings, urls
from sparkdash.errors import DaemonError

SOCKET_NAME = "daemon.sock"
"""In `paths.runtime_dir()`; the daemon's listener uses the same name."""


@dataclass(frozen=True, slots=True)
class Address:
    """A root URL (no trailing slash, no /v1), reached through the unix socket `uds` when there is one."""

    url: str
    uds: Path | None = None
    given: bool = False
    """True when the owner named it: then nothing is started in the background for it."""

    def __str__(self) -> str:
        return f"unix:{self.uds}" if self.uds else urls.shown(self.url)


def at_url(url: str) -> Address:
    """The address an owner wrote; a pasted `/v1` at its end is taken off.

    Raises:
        DaemonError: code `daemon_url_invalid`.
    """
    if not is_server(url):
        raise DaemonError(
            f"{urls.shown(url)!r} is not a URL of a daemon.",
            code="daemon_url_invalid",
            hint="It looks like http://127.0.0.1:8484 or http://[fd00::1]:8484.",
        )
    return Address(url.rstrip("/").removesuffix("/v1").rstrip("/"), given=True)


def is_server(url: str) -> bool:
    """Could a server be asked there, by all that we ask with?"""
    return urls.is_server(url) and ((url.isascii() and "xn--" not in url.lower()) or _is_known_abroad(url))


def _is_known_abroad(url: str) -> bool:
    """httpx goes by IDNA 2008, which knows fewer names than the standard library: no emoji, no wide letters."""
    import httpx  # one-shot commands are without it

    try:
        return bool(httpx.URL(url).host)
    except (httpx.InvalidURL, UnicodeError):
        return False


def at_socket(uds: Path) -> Address:
    """The daemon behind that socket. The host name in the URL only fills the Host header."""
    return Address("http://localhost", uds)


def resolve(url: str | None, uds: Path | None) -> Address:
    """Address of the daemon behind the socket `uds` or at `url`; without either, as `find` says. Raises as `find` does."""
    if uds is not None:
        return at_socket(uds)
    return find() if url is None else at_url(url)


def find() -> Address:
    """Find where this user's daemon is, or would be.

    Raises:
        DaemonError: SPARKDASH_URL is not a URL; `runtime_dir_closed`: the socket's folder cannot be looked into.
        ProfileError: the settings cannot be read.
    """
    if url := os.environ.get("SPARKDASH_URL"):
        return at_url(url)
    uds = paths.runtime_dir() / SOCKET_NAME
    if _is_there(uds):
        return at_socket(uds)
    known = settings.load()
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(known.host, known.host)  # noqa: S104 - where it listens, not where to call
    scheme = "https" if known.tls_cert else "http"
    return Address(f"{scheme}://{f'[{host}]' if ':' in host else host}:{known.port}")


def _is_there(uds: Path) -> bool:
    try:
        uds.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DaemonError(
            f"{uds.parent}, where the daemon's socket is, cannot be looked into: {error.strerror}.",
            code="runtime_dir_closed",
            hint="After `su` or `sudo`, SPARKDASH_RUNTIME_DIR or XDG_RUNTIME_DIR may still name another user's folder: unset it, "
            "or name the daemon in SPARKDASH_URL.",
        ) from None
    return True


def credentials(address: Address) -> dict[str, str]:
    """The header with SPARKDASH_KEY, when it is set; the unix socket needs none. Never part of an Address, which is shown."""
    key = os.environ.get("SPARKDASH_KEY", "").strip()
    return {"Authorization": f"Bearer {key}"} if key and address.uds is None else {}
