"""Upstream: the only HTTP client for engines: a GET, a raw stream, a short chat.

`client` is the face and keeps idle connections, `connection` speaks HTTP/1.1 on one socket. Rule 1: bytes of an answer
are handed on as they came; nothing is decoded, decompressed or collected. Rule 2: leaving an answer before its end
closes the connection, which is how an engine learns to stop.
"""

from sparkdash.upstream.client import EngineRequest, SmallResponse, Upstream, engine_error_text, readable
from sparkdash.upstream.connection import SWITCHED, EngineResponse, ResponseHead, UpgradedEngine, encode_headers

__all__ = [
    "SWITCHED",
    "EngineRequest",
    "EngineResponse",
    "ResponseHead",
    "SmallResponse",
    "UpgradedEngine",
    "Upstream",
    "encode_headers",
    "engine_error_text",
    "readable",
]
