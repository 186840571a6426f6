"""Known servers of language models: Atlas, LuceBox, Ollama, TabbyAPI, NIM.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sparkdash.domain.servers.routes import ServerRoute
from sparkdash.domain.servers.spec import LogFailure, LogStage, ServerKind, ServerMetrics, ServerSpec
from sparkdash.servers.drafting import atlas_speculation, lucebox_speculation
from sparkdash.servers.known_server import KnownServer

NO_METRICS = ServerMetrics(path=None)

_ATLAS = KnownServer(
    title="Atlas",
    source="Avarok-Cybersecurity/atlas, README and spark-server's sources, 2026",
    command=("spark", "serve", "{target}"),  # without a model it opens a chooser and waits for a person
    args={"bind": "127.0.0.1", "port": "{port}", "model-name": "{name}"},
    speculation=atlas_speculation,
    spec=ServerSpec(
        kind=ServerKind.ATLAS,
        routes=(ServerRoute.CHAT, ServerRoute.COMPLETIONS, ServerRoute.RESPONSES, ServerRoute.MESSAGES),
        health_has={"status": "ready"},
        usage_in_stream=True,
        log=(
            LogStage(stage="weights", pattern=r"Model config:|Selected kernel target:|Using fast weight loader"),
            LogStage(stage="weights", pattern=r"Loaded \d+ weight tensors", fraction=1.0),
            LogStage(stage="warmup", pattern=r"peculative decoding: ENABLED"),
            LogStage(stage="ready", pattern=r"Listening on", fraction=1.0),
        ),
        failures=(
            LogFailure(
                pattern=r"KV cache can hold at most 0 concurrent sequence",
                message="Its KV cache has no room for one request",
                hint="Lower `max-seq-len`, or raise `gpu-memory-utilization` in the profile.",
                code="out_of_memory",
            ),
            LogFailure(
                pattern=r"weight_global_scale'? not found in store|weight_scale.* dtype",
                message="Its image cannot read this checkpoint's layout",
                hint="Use a newer image of Atlas, or the checkpoint that its recipe names.",
            ),
        ),
    ),
)

_LUCEBOX = KnownServer(
    title="LuceBox",
    source="Luce-Org/lucebox-hub, server/README.md and http_server.cpp, July 2026",
    command=("dflash_server", "{target}"),
    args={"host": "127.0.0.1", "port": "{port}", "model-name": "{name}"},
    speculation=lucebox_speculation,
    spec=ServerSpec(
        kind=ServerKind.LUCEBOX,
        routes=(ServerRoute.CHAT, ServerRoute.RESPONSES, ServerRoute.MESSAGES),
        metrics=NO_METRICS,  # /status/json has figures, and prompts of people beside them
        log=(
            LogStage(stage="weights", pattern=r"\[server\] (?:loading tokenizer|creating backend)"),
            LogStage(stage="ready", pattern=r"\[server\] listening on", fraction=1.0),
        ),
    ),
)

_OLLAMA = KnownServer(
    title="Ollama",
    source="ollama/ollama, envconfig and server/routes.go, 0.33",
    command=("ollama", "serve"),
    env={
        "OLLAMA_HOST": "127.0.0.1:{port}",
        "OLLAMA_KEEP_ALIVE": "-1",  # else it lets the model go after five minutes
        "OLLAMA_NO_CLOUD": "1",  # else a `-cloud` model's prompts leave the box, and each start asks ollama.com
    },
    context_env="OLLAMA_CONTEXT_LENGTH",
    spec=ServerSpec(
        kind=ServerKind.OLLAMA,
        # messages since 0.14; a model that chats answers 501 to embeddings, and one that embeds 400 to chats (0.32.15)
        routes=(ServerRoute.CHAT, ServerRoute.COMPLETIONS, ServerRoute.RESPONSES, ServerRoute.MESSAGES),
        health="/",  # 200 long before the model: the proof loads it
        version="/api/version",
        metrics=NO_METRICS,
        usage_in_stream=True,
        log=(
            LogStage(stage="http", pattern=r"Listening on"),
            LogStage(stage="weights", pattern=r"starting (?:llama-server|runner)|waiting for llama-server"),
            LogStage(stage="ready", pattern=r"llama-server started in [\d.]+ seconds", fraction=1.0),
        ),
    ),
)

_TABBYAPI = KnownServer(
    title="TabbyAPI",
    source="theroyallab/tabbyAPI, docs/02 and docker/docker-compose.yml, 2026",
    command=("python3", "main.py"),
    args={"host": "127.0.0.1", "port": "{port}", "disable-auth": "True"},  # on the loopback alone; the gateway has keys
    shm_size="8g",
    spec=ServerSpec(
        kind=ServerKind.TABBYAPI,
        routes=(ServerRoute.CHAT, ServerRoute.COMPLETIONS),
        health_has={"status": "healthy"},
        metrics=NO_METRICS,
        usage_in_stream=True,
        log=(
            LogStage(stage="weights", pattern=r"Loading model(?: modules)?|Loading modules"),
            LogStage(stage="ready", pattern=r"Model successfully loaded", fraction=1.0),
        ),
    ),
)

_NIM = KnownServer(
    title="NIM",
    source="docs.nvidia.com/nim, 2026",
    shm_size="16g",
    spec=ServerSpec(
        kind=ServerKind.NIM,
        port=8000,  # it listens on all addresses, so it gets a network of its own
        routes=(ServerRoute.CHAT, ServerRoute.COMPLETIONS),
        health="/v1/health/ready",
        usage_in_stream=True,
        stop_s=60,
    ),
)

LANGUAGE: Mapping[ServerKind, KnownServer] = MappingProxyType(
    {
        ServerKind.ATLAS: _ATLAS,
        ServerKind.LUCEBOX: _LUCEBOX,
        ServerKind.OLLAMA: _OLLAMA,
        ServerKind.TABBYAPI: _TABBYAPI,
        ServerKind.NIM: _NIM,
    }
)
