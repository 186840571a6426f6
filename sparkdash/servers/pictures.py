"""Known servers of pictures: stable-diffusion.cpp's sd-server, SGLang's diffusion server.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sparkdash.domain.servers.routes import ServerRoute
from sparkdash.domain.servers.spec import LogStage, ServerKind, ServerMetrics, ServerSpec
from sparkdash.servers.known_server import KnownServer

_ROUTES = (ServerRoute.IMAGES, ServerRoute.IMAGE_EDITS)
_NO_METRICS = ServerMetrics(path=None)

_SD_CPP = KnownServer(
    title="stable-diffusion.cpp",
    source="leejet/stable-diffusion.cpp, examples/server/api.md, 2026",
    command=("sd-server",),
    args={"listen-ip": "127.0.0.1", "listen-port": "{port}"},  # the model's files differ: the profile names the flags
    spec=ServerSpec(
        kind=ServerKind.SD_CPP,
        routes=_ROUTES,
        health="/v1/models",
        metrics=_NO_METRICS,
        log=(
            LogStage(stage="weights", pattern=r"loading (?:diffusion |)model|loading tensors"),
            LogStage(stage="ready", pattern=r"listening on", fraction=1.0),
        ),
    ),
)

_SGLANG = KnownServer(
    title="SGLang diffusion",
    source="SGLang's documents on diffusion, 0.5.23",
    command=("sglang", "serve"),
    args={"model-path": "{target}", "host": "127.0.0.1", "port": "{port}"},
    shm_size="8g",
    spec=ServerSpec(
        kind=ServerKind.SGLANG_DIFFUSION,
        routes=_ROUTES,
        health="/models",  # one object about the model, and no list
        models=None,
        metrics=_NO_METRICS,
        log=(LogStage(stage="http", pattern=r"Application startup complete|Uvicorn running on"),),
    ),
)

PICTURES: Mapping[ServerKind, KnownServer] = MappingProxyType(
    {ServerKind.SD_CPP: _SD_CPP, ServerKind.SGLANG_DIFFUSION: _SGLANG}
)
