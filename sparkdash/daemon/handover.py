"""Listening sockets that outlive the daemon: inherited from systemd, and left with systemd for the next daemon.

Owns: LISTEN_FDS and related variables (sd_listen_fds(3)), read once and removed from the environment; and the names
under which systemd stores our sockets between two daemons (FDSTORE in sd_pid_notify_with_fds(3)). Must not know what is
served on them.

A socket unit owns its sockets, so the settings must name the same addresses. Sockets from systemd's store are our own,
left by the previous daemon: they are closed when the settings name other addresses by now.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkdash.daemon.systemd_notify import Notifier
from sparkdash.errors import HostError

FIRST = 3
"""First descriptor that is handed over (SD_LISTEN_FDS_START)."""
TCP, UNIX = "sparkdash-tcp", "sparkdash-unix"
"""Names of sparkdash's sockets in systemd's store."""
_VARIABLES = ("LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID")

Named = tuple[str, socket.socket]
"""A socket, and the name that the parent gave it."""


@dataclass
class Handover:
    """Sockets that a parent handed over; none without such a parent."""

    inherited: tuple[Named, ...] = ()
    notifier: Notifier = field(default_factory=Notifier)

    @property
    def outlives(self) -> bool:
        """Whether systemd keeps the sockets open once this daemon has ended."""
        return bool(self.inherited) or self.notifier.address is not None

    def tcp(self, host: str, port: int) -> socket.socket | None:
        """Take the inherited socket of this address, any port for port 0; None: there is none, so bind one.

        Raises:
            HostError: code `socket_mismatch`: a socket unit listens elsewhere.
        """
        tcp = [(name, sock) for name, sock in self.inherited if sock.family in (socket.AF_INET, socket.AF_INET6)]
        hosts = _hosts(host) if tcp else set()
        return self._take(tcp, f"{host}:{port}", lambda at: at[0] in hosts and port in (0, at[1]))

    def unix(self, path: Path) -> socket.socket | None:
        """Take the inherited unix socket of this path; None: there is none, so bind one. Raises HostError as `tcp`."""
        unix = [(name, sock) for name, sock in self.inherited if sock.family == socket.AF_UNIX]
        return self._take(unix, str(path), lambda at: at == str(path))

    def keep(self, tcp: socket.socket, unix: socket.socket) -> None:
        """Leave sockets that were bound here with systemd, which keeps as many as FileDescriptorStoreMax= allows."""
        held = [sock for _, sock in self.inherited]
        for name, sock in ((TCP, tcp), (UNIX, unix)):
            if sock not in held:
                self.notifier.tell("FDSTORE=1", f"FDNAME={name}", descriptors=(sock.fileno(),))

    def _take(self, candidates: list[Named], wanted: str, fits: Callable[[Any], bool]) -> socket.socket | None:
        found = None
        for name, sock in candidates:
            if fits(sock.getsockname()):
                found = sock
            elif name in (TCP, UNIX):
                self.notifier.tell("FDSTOREREMOVE=1", f"FDNAME={name}")
                sock.close()
            else:
                raise HostError(
                    f"The socket unit {name} listens on {_shown(sock)}, and the settings say {wanted}.",
                    code="socket_mismatch",
                    hint="ListenStream= of the unit and the settings (host, port, SPARKDASH_RUNTIME_DIR) must agree.",
                )
        return found


def inherited_sockets(notifier: Notifier, environ: MutableMapping[str, str] = os.environ) -> Handover:
    """Take the sockets that systemd handed to this process.

    The variables are removed, so that no child takes them for its own.

    Raises:
        HostError: code `socket_unusable`: what is named is no socket.
    """
    count, names, pid = (environ.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()) or not count.isdecimal():
        return Handover((), notifier)
    called = names.split(":") if names else []
    inherited = tuple(
        (called[index] if index < len(called) else "unknown", _socket(FIRST + index)) for index in range(int(count))
    )
    return Handover(inherited, notifier)


def _socket(descriptor: int) -> socket.socket:
    try:
        os.set_inheritable(descriptor, False)  # engines must not hold the port
        sock = socket.socket(fileno=descriptor)
    except OSError as error:
        raise HostError(
            f"LISTEN_FDS names descriptor {descriptor}, which is no open socket: {error.strerror}.",
            code="socket_unusable",
            hint="Unset LISTEN_FDS and LISTEN_PID, or have systemd start sparkdash.",
        ) from None
    sock.setblocking(False)
    return sock


def _hosts(host: str) -> set[str]:
    """Addresses to which a socket for this host may be bound."""
    return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}


def _shown(sock: socket.socket) -> str:
    name = sock.getsockname()
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)
