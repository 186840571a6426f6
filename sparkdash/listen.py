"""Listeners of the daemon: its sockets, its lock, and the server over them."""

import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import socket
import ssl
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from sparkdash.errors import DaemonError, HostError
from sparkdash.wire import ClientConnection, ConnectionLimit, ServerState
from sparkdash.wire.request_channel import Serve

SOCKET_NAME = "daemon.sock"
BACKLOG = 4096
"""Connections that the kernel queues while a restart takes seconds; capped by net.core.somaxconn, mostly 4,096."""
GRACE_S = 3
"""Seconds for which a stop waits for answers that are under way."""
OTHERS = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP
"""Permissions on a TLS key that other users must not have. A group may read it, as Debian's `ssl-cert` does."""
LINGER_S = 0.5
"""Seconds for which a kept connection may bring one more request after the stop, where the next daemon takes over the
sockets. A busy agent or load generator uses each connection sooner, and is told that it closes.
"""
KEPT_FILES = 48
"""Descriptors kept for everything but clients and their engine connections: the daemon's own (25), podman's pipes, the
database's files.
"""
MANY_FILES = 65_536
"""Assumed limit of open files where there is none."""


def most_connections() -> int:
    """Connections that the limit of open files allows; each takes two files while its request is answered."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = MANY_FILES if soft == resource.RLIM_INFINITY else soft
    return max(1, (files - KEPT_FILES) // 2)


@dataclass(frozen=True)
class Tls:
    """Certificate with its chain, and its key; both PEM, the key without a passphrase."""

    cert: Path
    key: Path

    def check(self) -> None:
        """Check the TLS files. Raises HostError: `tls_unusable`, or `tls_key_open` when others may read the key."""
        try:
            self.context()
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = getattr(error, "strerror", None) or getattr(error, "reason", None) or error
            raise HostError(
                f"sparkdash cannot serve https with {self.cert} and {self.key}: {why}.",
                code="tls_unusable",
                hint="tls_cert and tls_key in config.toml must name one pair of PEM files, the key without passphrase.",
            ) from None
        if self.key.stat().st_mode & OTHERS:
            raise HostError(
                f"Others may read or change the TLS key {self.key}.", code="tls_key_open", hint=f"chmod 600 {self.key}"
            )

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.cert, self.key, password="")
        return context


class Server:
    """Serves an application on listening sockets until `stop`. The unix socket never speaks TLS."""

    def __init__(
        self, serve: Serve, tls: Tls | None = None, linger_s: float = 0.0, limit: ConnectionLimit | None = None
    ) -> None:
        self.state = ServerState(serve, limit, linger_s)
        self._tls = tls
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Finish what is under way (at most GRACE_S) and return from `serve`. Idempotent."""
        self._stop.set()

    async def stopping(self) -> None:
        await self._stop.wait()

    async def serve(self, sockets: Iterable[socket.socket]) -> None:
        loop, servers, sockets = asyncio.get_running_loop(), [], list(sockets)
        tls = self._tls.context() if self._tls else None
        for each in sockets:
            context = None if each.family == socket.AF_UNIX else tls
            made = partial(ClientConnection, self.state)
            servers.append(await loop.create_server(made, sock=each, ssl=context, backlog=BACKLOG))
        await self._stop.wait()
        for server in servers:
            server.close()
        for each in sockets:
            each.close()
        await self.state.shut_down(GRACE_S)


def bind_tcp(host: str, port: int) -> socket.socket:
    """Open a listening TCP socket; port 0 takes a free one. Raises HostError: `port_in_use`, `cannot_listen`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small pieces at once only through a socket that says that it is TCP
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        in_use = error.errno == errno.EADDRINUSE
        raise HostError(
            f"sparkdash cannot listen on {host}:{port}: {error.strerror}.",
            code="port_in_use" if in_use else "cannot_listen",
            hint="Another program uses this port. End it, or set `port` in config.toml (`serve --port N` for once)."
            if in_use
            else None,
        ) from None
    sock.setblocking(False)
    return sock


def root_url(sock: socket.socket, tls: Tls | None = None) -> str:
    """Return the URL of a listening TCP socket for clients on this box, without /v1."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - "everywhere" is no address to call
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def bind_unix(path: Path) -> socket.socket:
    """Open a listening unix socket for this user alone. A stale one is replaced: the daemon's lock is held.

    Raises:
        HostError: code `cannot_listen`.
    """
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old = os.umask(0o177)
    try:
        sock.bind(str(path))
    except OSError as error:
        sock.close()
        why = error.strerror or error  # a path beyond 107 bytes has no errno
        raise HostError(
            f"sparkdash cannot make its socket {path}: {why}.",
            code="cannot_listen",
            hint="Choose another folder with SPARKDASH_RUNTIME_DIR.",
        ) from None
    finally:
        os.umask(old)
    sock.listen(BACKLOG)
    sock.setblocking(False)
    return sock


def _lock_file(folder: Path) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return (folder / "daemon.lock").open("a+")
    except OSError as error:
        raise HostError(
            f"sparkdash cannot keep its lock and socket in {folder}: {error.strerror or error}.",
            code="folder_unusable",
            hint="Make it writable, or name another with SPARKDASH_RUNTIME_DIR (or SPARKDASH_STATE_DIR).",
        ) from None


@contextmanager
def hold_daemon_lock(folder: Path) -> Iterator[Callable[[str], None]]:
    """Hold the folder's lock while the daemon lives, and give a function that writes the holder's name into the file.

    The name is for a second daemon's message; a full disk loses only the name. Raises DaemonError, HostError.
    """
    with _lock_file(folder) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise DaemonError(
                f"A sparkdash daemon runs already ({file.read().strip() or 'its lock is held'}).",
                code="daemon_running",
                hint="`sparkdash status` shows it, `sparkdash stop --daemon` ends it.",
            ) from None
        named = partial(_name, file.fileno())
        named("")
        yield named
        named("")


def _name(descriptor: int, holder: str) -> None:
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.write(descriptor, holder.encode())
