"""Wire: a client's HTTP connection, parsed by llhttp, with limits for heads.

`connection` orders the answers and limits the connections, `request_channel` is one request's end of it. An application
is a function that is handed each request's RequestChannel.
"""

from sparkdash.wire.connection import ClientConnection, ConnectionLimit, ServerState
from sparkdash.wire.request_channel import RequestChannel, ResponseHeaders, UpgradedConnection, by_name

__all__ = [
    "ClientConnection",
    "ConnectionLimit",
    "RequestChannel",
    "ResponseHeaders",
    "ServerState",
    "UpgradedConnection",
    "by_name",
]
