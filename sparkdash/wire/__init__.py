"""Wire: a client's HTTP connection, over llhttp as uvicorn's is, with limits for heads and a way past ASGI's messages.

`connection` parses and says in which order requests are answered, `head` is what a request says before its body and `told` what its
answer does, `line` is one request's end of it, `deadline` the connection's one clock, `turns` how many requests begin at a time, `connection_limit` how many connections there are. To
uvicorn's server it is what its own protocol would be; to an application it is ASGI, or, if it has `serve_line`, the Line itself.
"""

from sparkdash.wire.connection import Closing, Wire
from sparkdash.wire.connection_limit import ConnectionLimit, Crowding
from sparkdash.wire.head import Heads, by_name
from sparkdash.wire.line import Line
from sparkdash.wire.told import Told
from sparkdash.wire.turns import Turns

__all__ = ["Closing", "ConnectionLimit", "Crowding", "Heads", "Line", "Told", "Turns", "Wire", "by_name"]
