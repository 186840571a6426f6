"""Upstream: the only HTTP client for engines: a GET, a raw stream, a short chat.

`client` is the face, `pool` keeps idle connections, `connection` speaks HTTP/1.1 on one socket, and `engine_response` is
an answer and what engines say in it. Rule 1:
bytes of an answer are handed on as they came; nothing is decoded, decompressed or collected. Rule 2: leaving an
answer before its end closes the connection, which is how an engine learns to stop.
"""

from sparkdash.upstream.client import SmallResponse, Upstream
from sparkdash.upstream.connection import SWITCHED, UpgradedEngine, encode_headers
from sparkdash.upstream.engine_response import EngineResponse, engine_error_text

__all__ = [
    "SWITCHED",
    "EngineResponse",
    "SmallResponse",
    "UpgradedEngine",
    "Upstream",
    "encode_headers",
    "engine_error_text",
]
