"""Addresses of sockets: in the form that ASGI has, and whether they are beyond this box.

Pure.
"""

from __future__ import annotations

Address = tuple[str, int | None] | None
"""A host and a port; (path, None) for a unix socket."""
SocketName = tuple[str, int] | tuple[str, int, int, int] | str | None
"""Name of a socket as its transport keeps it."""


def remote_host(name: SocketName) -> str | None:
    """Return the host of a socket's name; None for loopback and unix sockets."""
    if not isinstance(name, tuple):
        return None
    host = name[0]
    return None if host == "::1" or host.startswith(("127.", "::ffff:127.")) else host


def asgi_address(name: SocketName) -> Address:
    """Return a socket's name in ASGI's form, which keeps two of IPv6's four parts."""
    if isinstance(name, tuple):
        return name[0], name[1]
    return (name, None) if isinstance(name, str) else None
