"""Upstream: the only HTTP client towards engines: a quick look, a raw stream, a short generation.

Owns: connections to engines and what their failures are called. Must not know profiles, leases or clients.
`connection` speaks HTTP/1.1 on one socket, `pool` keeps those that are free, `head` is what an engine says before a body, `answer`
what came, `client` the face, `words` are what an engine says of itself.
Rule 1: bytes of an answer are handed on as they came; nothing is decoded, decompressed or collected.
Rule 2: leaving an answer before its end closes the connection, which is how an engine learns to stop.
"""

from sparkdash.upstream.client import SmallResponse, Upstream
from sparkdash.upstream.engine_response import EngineResponse
from sparkdash.upstream.engine_text import engine_error_text
from sparkdash.upstream.response_head import encode_headers

__all__ = ["EngineResponse", "SmallResponse", "Upstream", "encode_headers", "engine_error_text"]
