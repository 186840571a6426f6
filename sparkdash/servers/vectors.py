"""Known servers of embeddings and rerankers: Text Embeddings Inference, Infinity.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sparkdash.domain.servers.routes import ServerRoute
from sparkdash.domain.servers.spec import LogFailure, LogStage, ServerKind, ServerMetrics, ServerSpec
from sparkdash.servers.known_server import KnownServer

_TEI = KnownServer(
    title="Text Embeddings Inference",
    source="huggingface/text-embeddings-inference, cli_arguments.md and router sources, 1.9",
    args={"model-id": "{target}", "hostname": "127.0.0.1", "port": "{port}"},  # after the image's own entrypoint
    spec=ServerSpec(
        kind=ServerKind.TEI,
        routes=(ServerRoute.EMBEDDINGS,),  # a reranker's profile says `routes: [rerank]`
        paths={ServerRoute.RERANK: "/rerank"},
        models=None,
        version="/info",
        metrics=ServerMetrics(
            names={"waiting": "te_queue_size", "moving": ("te_request_count", "te_embed_count", "te_predict_count")},
            is_live=False,
        ),
        log=(
            LogStage(stage="download", pattern=r"Starting download|Downloading `"),
            LogStage(stage="weights", pattern=r"Starting \w+ model on "),
            LogStage(stage="warmup", pattern=r"Warming up model"),
            LogStage(stage="ready", pattern=r"text_embeddings_router.*: Ready$", fraction=1.0),
        ),
        failures=(
            LogFailure(
                pattern=r"Could not (?:start|create) backend",
                message="Its back end cannot run this model",
                hint="Choose a model that it supports, and for a Spark an image with a tag of the form 121-….",
            ),
        ),
    ),
)

_INFINITY = KnownServer(
    title="Infinity",
    source="michaelfeil/infinity, command line of v2, 0.0.77",
    command=("infinity_emb", "v2"),
    args={"model-id": "{target}", "host": "127.0.0.1", "port": "{port}", "url-prefix": "/v1"},
    spec=ServerSpec(
        kind=ServerKind.INFINITY,
        routes=(ServerRoute.EMBEDDINGS,),
        metrics=ServerMetrics(path=None),  # its figures are those of its HTTP server
        log=(LogStage(stage="ready", pattern=r"Application startup complete", fraction=1.0),),
    ),
)

VECTORS: Mapping[ServerKind, KnownServer] = MappingProxyType({ServerKind.TEI: _TEI, ServerKind.INFINITY: _INFINITY})
