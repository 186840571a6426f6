"""Where clients come in, and with what.

Owns: that nobody comes in from elsewhere without a key, and the two sockets for as long as the daemon lives.
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
from sparkdash.access.keyring import Keyring
from sparkdash.access.keyring import place as keyring_place
from sparkdash.errors import ProfileError
from sparkdash.handover import Handover
from sparkdash.settings import Settings

LOG = structlog.get_logger("sparkdash")


@dataclass(frozen=True)
class Listeners:
    """Where clients come in, and with what."""

    sockets: list[socket.socket]
    url: str
    keys: Keyring
    tls: listen.Tls | None
    outlives: bool
    """Whether the sockets stay open for the next daemon once this one has ended."""


@contextmanager
def open_listeners(settings: Settings, handover: Handover) -> Iterator[Listeners]:
    """Bind the sockets, or take inherited ones, and lock out a second daemon. Raises SparkdashError when that fails.

    The sockets listen from here on, while the daemon is still built (80 ms of CPU). The kernel keeps early connections
    until they can be answered; sockets that open last would refuse them.
    """
    folder, tls = paths.runtime_dir(), _tls(settings)
    keys = _keys(settings)
    with ExitStack() as held:
        # by state too: two daemons that differ only in where their sockets are would own the same engines
        places = dict.fromkeys(place.resolve() for place in (folder, paths.state_dir()))
        locks = [held.enter_context(listen.only_one(place)) for place in places]
        tcp = handover.tcp(settings.host, settings.port) or listen.bind_tcp(settings.host, settings.port)
        unix = handover.unix(folder / listen.SOCKET_NAME) or listen.bind_unix(folder / listen.SOCKET_NAME)
        handover.keep(tcp, unix)
        url = listen.root_url(tcp, tls)
        for name in locks:
            name(f"pid {os.getpid()}, {url}")
        try:
            yield Listeners([tcp, unix], url, keys, tls, handover.outlives)
        finally:
            if not handover.outlives:
                (folder / listen.SOCKET_NAME).unlink(missing_ok=True)


def _keys(settings: Settings) -> Keyring:
    """Raises ProfileError: there are none, and other boxes could come in; or the file of keys is no good."""
    keyring = Keyring(keyring_place())
    if not keyring.look() and settings.beyond_loopback:
        raise ProfileError(
            f"sparkdash would serve everybody who can reach {settings.host}: there are no keys yet.",
            code="keys_needed",
            hint="Make one with `sparkdash keys add NAME`, or stay on 127.0.0.1 and use `ssh -L` from elsewhere.",
        )
    if settings.beyond_loopback and settings.tls_cert is None:
        LOG.warning("keys and prompts cross the network in clear text", host=settings.host, mend="tls_cert and tls_key")
    return keyring


def _tls(settings: Settings) -> listen.Tls | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    tls = listen.Tls(settings.tls_cert.expanduser(), settings.tls_key.expanduser())
    tls.check()
    return tls
