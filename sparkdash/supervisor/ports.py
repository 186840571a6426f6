"""A TCP port for the next engine.

Owns: finding one that nothing holds. Between this look and the engine's own bind another program may take it; the
engine then says so, and its failure is classified.
"""

from __future__ import annotations

import errno
import socket
import zlib
from collections.abc import Collection

from sparkdash.errors import HostError


class Ports:
    """Walks round the range, so that a port just left (its connections linger for a minute) is not taken again at once.

    `seed` sets where it begins: two daemons on one box should not meet.
    """

    def __init__(self, first: int, last: int, seed: str) -> None:
        self._first = first
        self._count = last - first + 1
        self._next = zlib.crc32(seed.encode()) % self._count if self._count > 0 else 0

    def take(self, given: Collection[int | None] = ()) -> int:
        """Choose the next port that is free on 127.0.0.1, and not `given` to an engine that does not listen yet.

        Raises:
            HostError: `port_in_use`, when something holds every port of the range.
        """
        for _ in range(self._count):
            port = self._first + self._next
            self._next = (self._next + 1) % self._count
            if port not in given and _free(port):
                return port
        raise HostError(
            f"Every port from {self._first} to {self._first + self._count - 1} on 127.0.0.1 is taken.",
            code="port_in_use",
            hint="`ss -ltnp` names the programs; or set `engine_ports` in config.toml to another range.",
        )


def _free(port: int) -> bool:
    with socket.socket() as probe:
        # as engines do: a connection in TIME_WAIT does not occupy the port
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
        return True
