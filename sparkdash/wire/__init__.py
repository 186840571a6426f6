"""Wire: a client's HTTP connection, over llhttp as uvicorn's is, with limits for heads and a way past ASGI's messages.

`connection` parses and orders the answers. `head` is what a request says before its body, `told` an answer's head,
`line` one request's end of the connection. `deadline` is the connection's one clock, `turns` limits how many requests
begin at a time, and `connection_limit` the connections. uvicorn's server takes it for a protocol of its own. An
application gets ASGI, or the Line itself if it has `serve_channel`.
"""

from sparkdash.wire.connection import ClientConnection, Shutdown
from sparkdash.wire.connection_limit import ConnectionLimit, Crowding
from sparkdash.wire.request_channel import RequestChannel
from sparkdash.wire.request_head import RequestHeadCache, by_name
from sparkdash.wire.response_headers import ResponseHeaders
from sparkdash.wire.turns import Turns

__all__ = [
    "ClientConnection",
    "ConnectionLimit",
    "Crowding",
    "RequestChannel",
    "RequestHeadCache",
    "ResponseHeaders",
    "Shutdown",
    "Turns",
    "by_name",
]
