"""DaemonConnection: one HTTP connection to the daemon, which waits for its answers.

Owns: the standard library's client over TCP, TLS and a unix socket, and what its failures mean. It loads in a third
of httpx's time, which is a third of what a one-shot command takes. Must not know: what is asked.
"""

from __future__ import annotations

import json
import select
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from sparkdash.api.rows import HttpCall
from sparkdash.client import envelope
from sparkdash.client.address import Address, credentials

CONNECT_S = 3.0
"""Seconds within which a connection must be open."""


class DaemonConnection:
    """A connection to `address`, opened when first asked and again when the daemon has closed it in between."""

    def __init__(self, address: Address) -> None:
        self._address = address
        parts = urlsplit(address.url)
        self._root = parts.path.rstrip("/")
        self._headers = {**credentials(address), **_login(parts)}
        self._connection = _UnixConnection(address.uds) if address.uds else _over_tcp(parts)

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._connection.close()

    @contextmanager
    def exchange(self, request: HttpCall, silence_s: float | None) -> Iterator[HTTPResponse]:
        """Send a request and give its answer; the body is read inside. `silence_s`: the longest pause; None: any.

        Raises:
            DaemonError: as `envelope` words it.
        """
        self._open()
        self._connection.sock.settimeout(silence_s)
        content, headers = None, self._headers
        if request.body is not None:
            content, headers = json.dumps(request.body).encode(), {**headers, "Content-Type": "application/json"}
        reply = None
        try:
            self._connection.request(request.method, self._root + request.target, content, headers)
            reply = self._connection.getresponse()
            yield reply
        except TimeoutError:
            raise envelope.silent_error(self._address) from None
        except (OSError, HTTPException) as error:
            raise envelope.hung_up_error(self._address, type(error).__name__) from None
        finally:
            if reply is None or not reply.isclosed():  # left in the middle
                self._connection.close()

    def _open(self) -> None:
        idle = self._connection.sock
        if idle is not None and not select.select([idle], [], [], 0)[0]:
            return
        self._connection.close()
        try:
            self._connection.connect()
        except OSError as error:
            self._connection.close()
            raise envelope.unreachable_error(self._address, str(error)) from None


class _UnixConnection(HTTPConnection):
    """Connection to a unix socket. The host only fills the Host header."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=CONNECT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the unix socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(CONNECT_S)
        self.sock.connect(str(self._path))


def _over_tcp(parts: SplitResult) -> HTTPConnection:
    if parts.scheme == "http":
        return HTTPConnection(parts.hostname or "", parts.port, timeout=CONNECT_S)
    import httpx  # whom it trusts, the rest of the commands trust

    context = httpx.create_ssl_context()
    return HTTPSConnection(parts.hostname or "", parts.port, timeout=CONNECT_S, context=context)


def _login(parts: SplitResult) -> dict[str, str]:
    """Return the header for a name and a password in the URL, which a proxy before the daemon may want."""
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
