"""Address of the daemon: SPARKDASH_URL, else its unix socket, else its port on loopback."""

import os
from dataclasses import dataclass
from pathlib import Path

from sparkdash import paths, redaction
from sparkdash.errors import DaemonError

SOCKET_NAME = "daemon.sock"
"""In `paths.runtime_dir()`; the daemon's listener uses the same name."""


@dataclass(frozen=True, slots=True)
class Address:
    """A root URL (no trailing slash, no /v1), reached through the unix socket `uds` when there is one."""

    url: str
    uds: Path | None = None
    given: bool = False
    """Whether the owner named it: nothing is started in the background for such an address."""

    def __str__(self) -> str:
        return f"unix:{self.uds}" if self.uds else self.url


def at_url(url: str) -> Address:
    """Return the address that an owner wrote, without a `/v1` at its end.

    Raises DaemonError: `daemon_url_invalid`; `daemon_url_login`: an address is shown, so it has no password.
    """
    shown = redaction.shown_url(url)
    if not redaction.is_server(url) or not url.isascii() or "xn--" in url.lower():
        raise DaemonError(
            f"{shown!r} is not a URL of a daemon.",
            code="daemon_url_invalid",
            hint="It looks like http://127.0.0.1:8484 or http://[fd00::1]:8484.",
        )
    if redaction.has_login(url):
        raise DaemonError(
            f"{shown} contains a password, which would be shown and stored in clients' files.",
            code="daemon_url_login",
            hint="Give the address without it; a key goes into SPARKDASH_KEY.",
        )
    return Address(url.rstrip("/").removesuffix("/v1").rstrip("/"), given=True)


def at_socket(uds: Path) -> Address:
    """Return the address of the daemon behind a socket. The host in the URL only fills the Host header."""
    return Address("http://localhost", uds)


def resolve(url: str | None) -> Address:
    return find_daemon() if url is None else at_url(url)


def find_daemon() -> Address:
    """Find where this user's daemon is, or would be. Raises DaemonError, and ProfileError for unreadable settings."""
    if url := os.environ.get("SPARKDASH_URL"):
        return at_url(url)
    uds = paths.runtime_dir() / SOCKET_NAME
    if _is_there(uds):
        return at_socket(uds)
    from sparkdash import settings  # their models take a tenth of the dashboard's start, and a socket needs none

    known = settings.load_settings()
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - listening addresses, which no client can call
    host = everywhere.get(known.host, known.host)
    scheme = "https" if known.tls_cert else "http"
    return Address(f"{scheme}://{f'[{host}]' if ':' in host else host}:{known.port}")


def _is_there(uds: Path) -> bool:
    try:
        uds.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DaemonError(
            f"The folder of the daemon's socket, {uds.parent}, cannot be read: {error.strerror}.",
            code="runtime_dir_closed",
            hint="After `su` or `sudo`, SPARKDASH_RUNTIME_DIR or XDG_RUNTIME_DIR may still name another user's folder: "
            "unset the variable, or name the daemon in SPARKDASH_URL.",
        ) from None
    return True


def credentials(address: Address) -> dict[str, str]:
    """Return the header with SPARKDASH_KEY, if the key is set; the unix socket needs none.

    The key is never part of an Address, which is shown.
    """
    key = os.environ.get("SPARKDASH_KEY", "").strip()
    return {"Authorization": f"Bearer {key}"} if key and address.uds is None else {}
