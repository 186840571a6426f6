"""Known servers of speech: Speaches (Whisper, Parakeet, Kokoro, Piper), parakeet-api, Kokoro-FastAPI.

Voxtral and Qwen3-ASR are models of vLLM, which has a dialect.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sparkdash.domain.servers.routes import ServerRoute
from sparkdash.domain.servers.spec import LogStage, ServerKind, ServerMetrics, ServerSpec
from sparkdash.servers.known_server import KnownServer

_NO_METRICS = ServerMetrics(path=None)
_UVICORN = (LogStage(stage="http", pattern=r"Application startup complete|Uvicorn running on"),)

_SPEACHES = KnownServer(
    title="Speaches",
    source="speaches-ai/speaches, Dockerfile and config.py, 0.9",
    env={
        "UVICORN_HOST": "127.0.0.1",
        "UVICORN_PORT": "{port}",
        "WHISPER__TTL": "-1",  # else it lets the model go after five minutes
        "LOG_LEVEL": "info",
        "ENABLE_UI": "false",
    },
    spec=ServerSpec(
        kind=ServerKind.SPEACHES,
        routes=(ServerRoute.TRANSCRIPTIONS, ServerRoute.TRANSLATIONS),
        metrics=_NO_METRICS,
        log=_UVICORN,
    ),
)

_PARAKEET = KnownServer(
    title="parakeet-api",
    source="Marshall2HD/parakeet-api, README.md, 2026",
    spec=ServerSpec(
        kind=ServerKind.PARAKEET,
        port=8000,
        routes=(ServerRoute.TRANSCRIPTIONS,),
        health="/healthz",
        metrics=_NO_METRICS,
        log=_UVICORN,
    ),
)

_KOKORO = KnownServer(
    title="Kokoro-FastAPI",
    source="remsky/Kokoro-FastAPI, docker/scripts/entrypoint.sh and README.md, 2026",
    spec=ServerSpec(
        kind=ServerKind.KOKORO,
        port=8880,
        routes=(ServerRoute.SPEECH,),
        ready_with={"voice": "af_bella"},
        metrics=_NO_METRICS,
        log=_UVICORN,
    ),
)

SOUND: Mapping[ServerKind, KnownServer] = MappingProxyType(
    {ServerKind.SPEACHES: _SPEACHES, ServerKind.PARAKEET: _PARAKEET, ServerKind.KOKORO: _KOKORO}
)
