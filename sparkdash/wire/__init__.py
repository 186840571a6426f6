"""Wire: a client's HTTP connection, parsed by llhttp, with limits for heads.

`connection` orders the answers, on top of `request_parser`. `request_head` is what a request says before its body,
`request_body` takes the body in, `request_channel` sends the answer, `response_headers` are headers as they are
written. `refusal` answers what is no request, `addresses` names peers.
`upgraded` keeps what comes after a request for a WebSocket, `deadline` is the connection's one clock, `turns` limits
how many requests begin at a time, `connection_limit` limits the connections. uvicorn's server makes the connections.
An application gets ASGI, or the RequestChannel itself, without ASGI's messages, if it has `serve_channel`.
"""

from sparkdash.wire.connection import ClientConnection, Shutdown, Turns
from sparkdash.wire.connection_limit import ConnectionLimit, Crowding
from sparkdash.wire.heads import RequestHeadCache, ResponseHeaders, by_name
from sparkdash.wire.request_channel import RequestChannel, UpgradedConnection

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
