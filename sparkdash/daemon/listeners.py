"""Listening sockets of the daemon, with their TLS files, keys and lock.

Owns: refusing to listen beyond loopback without a key, and the two sockets for as long as the daemon lives.
Must not know what is served.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import structlog

from sparkdash import listen, paths
from sparkdash.access.keyring import Keyring, keys_file
from sparkdash.daemon.handover import Handover
from sparkdash.errors import ProfileError
from sparkdash.settings import Settings

LOG = structlog.get_logger("sparkdash")


@dataclass(frozen=True)
class Listeners:
    """Open sockets, and what a client needs to pass them."""

    sockets: list[socket.socket]
    url: str
    keys: Keyring
    tls: listen.Tls | None
    outlives: bool
    """Whether the sockets stay open for the next daemon."""


@contextmanager
def open_listeners(settings: Settings, handover: Handover) -> Iterator[Listeners]:
    """Bind the sockets, or take inherited ones, and lock out a second daemon.

    Listening begins before the daemon is built (80 ms of CPU), so that the kernel keeps early connections until they
    can be answered. Raises SparkdashError when a socket or the lock cannot be had.
    """
    folder, tls = paths.runtime_dir(), _tls(settings)
    keys = _keys(settings)
    with ExitStack() as held:
        # the state folder too: two daemons that differ only in the folder of their sockets would own the same engines
        places = dict.fromkeys(place.resolve() for place in (folder, paths.state_dir()))
        lock_writers = [held.enter_context(listen.hold_daemon_lock(place)) for place in places]
        tcp = handover.tcp(settings.host, settings.port) or listen.bind_tcp(settings.host, settings.port)
        unix = handover.unix(folder / listen.SOCKET_NAME) or listen.bind_unix(folder / listen.SOCKET_NAME)
        handover.keep(tcp, unix)
        url = listen.root_url(tcp, tls)
        for write_holder in lock_writers:
            write_holder(f"pid {os.getpid()}, {url}")
        try:
            yield Listeners([tcp, unix], url, keys, tls, handover.outlives)
        finally:
            if not handover.outlives:
                (folder / listen.SOCKET_NAME).unlink(missing_ok=True)


def _keys(settings: Settings) -> Keyring:
    """Read the keys. Raises ProfileError without keys beyond loopback, and for a damaged file of keys."""
    keyring = Keyring(keys_file())
    if not keyring.look() and settings.beyond_loopback:
        raise ProfileError(
            f"sparkdash would serve everybody who can reach {settings.host}: there are no keys yet.",
            code="keys_needed",
            hint="Make one with `sparkdash keys add NAME`, or stay on 127.0.0.1 and use `ssh -L` from elsewhere.",
        )
    if settings.beyond_loopback and settings.tls_cert is None:
        LOG.warning("keys and prompts cross the network in clear text", host=settings.host, set="tls_cert and tls_key")
    return keyring


def _tls(settings: Settings) -> listen.Tls | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    tls = listen.Tls(settings.tls_cert.expanduser(), settings.tls_key.expanduser())
    tls.check()
    return tls
