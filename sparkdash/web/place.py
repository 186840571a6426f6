"""Place: the address at which the dashboard is served. Loads no server: those who only name a place need none."""

from __future__ import annotations

import ssl
from typing import NamedTuple


class Place(NamedTuple):
    """Host, port, and the TLS context where the connection is https."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
