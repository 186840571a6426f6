"""Wire: a client's HTTP connection, parsed by llhttp, with limits for heads.

`connection` orders the answers, `request_channel` is one request's end of it, `heads` what is said before a body, and
`connection_limit` limits the connections. uvicorn's server makes them. An application gets ASGI, or the RequestChannel
itself, without ASGI's messages, if it has `serve_channel`.
"""

from sparkdash.wire.connection import ClientConnection, ConnectionLimit, Crowding, Shutdown, Turns
from sparkdash.wire.request_channel import (
    RequestChannel,
    RequestHeadCache,
    ResponseHeaders,
    UpgradedConnection,
    by_name,
)

__all__ = [
    "ClientConnection",
    "ConnectionLimit",
    "Crowding",
    "RequestChannel",
    "RequestHeadCache",
    "ResponseHeaders",
    "Shutdown",
    "Turns",
    "UpgradedConnection",
    "by_name",
]
