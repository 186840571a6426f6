"""Servers that a profile names by their kind (`server: {kind: …}`), each as its own source describes it. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sparkdash.domain.profile import (
    ArgValue,
    EngineKind,
    LogFailure,
    LogStage,
    Profile,
    ServerKind,
    ServerMetrics,
    ServerSpec,
)
from sparkdash.domain.request import ServerRoute

Args = Mapping[str, ArgValue]


def atlas_speculation(args: Args) -> str | None:
    """Describe Atlas's: a drafting model, the model's own heads, or what its flag alone says."""
    if args.get("dflash"):
        return _with_count("dflash", args.get("dflash-gamma"))
    if args.get("self-speculative"):
        return _with_count("self-speculative", args.get("num-drafts"))
    if not args.get("speculative"):
        return None
    has_heads = any(key.startswith("mtp-") for key in args)
    return _with_count("mtp" if has_heads else "speculative", args.get("num-drafts"))


def _lucebox_speculation(args: Args) -> str | None:
    """Describe LuceBox's: a drafting model, whose drafts may be a tree of so many tokens."""
    if args.get("ddtree"):
        budget = args.get("ddtree-budget")
        return "ddtree" if budget is None else f"ddtree budget={budget}"
    return "dflash" if args.get("draft") else None


def _with_count(method: str, drafts: ArgValue | None) -> str:
    return method if drafts is None else f"{method} k={drafts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownServer:
    """Server as its own source describes it; a profile's keys precede these."""

    title: str
    spec: ServerSpec
    source: str
    """Document and date of the description."""
    command: tuple[str, ...] = ()
    """Program with its first words, for a profile without `command`."""
    args: Mapping[str, ArgValue] = field(default_factory=dict)
    """Flags that the server needs to be reachable, and to be called by the profile's name."""
    env: Mapping[str, str] = field(default_factory=dict)
    context_env: str | None = None
    """Variable that tells the server the profile's `context`."""
    shm_size: str | None = None
    speculation: Callable[[Mapping[str, ArgValue]], str | None] = lambda _: None
    """Speculation that a profile's args switch on, such as "mtp k=2"; None without."""
    tried: str = "not tried on hardware"
    """Where the description was seen to work."""

    def variables(self, context: int | None) -> Mapping[str, str]:
        told = {self.context_env: str(context)} if self.context_env and context else {}
        return {**self.env, **told}


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
    speculation=_lucebox_speculation,
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

_KOKORO = KnownServer(
    title="Kokoro-FastAPI",
    source="remsky/Kokoro-FastAPI, docker/scripts/entrypoint.sh and README.md, 2026",
    spec=ServerSpec(
        kind=ServerKind.KOKORO,
        port=8880,
        routes=(ServerRoute.SPEECH,),
        ready_with={"voice": "af_bella"},
        metrics=NO_METRICS,
        log=(LogStage(stage="http", pattern=r"Application startup complete|Uvicorn running on"),),
    ),
)

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

_ALL = (_ATLAS, _LUCEBOX, _OLLAMA, _NIM, _TEI, _KOKORO)
KNOWN: Mapping[ServerKind, KnownServer] = MappingProxyType({one.spec.kind: one for one in _ALL if one.spec.kind})


def known_server(profile: Profile) -> KnownServer | None:
    """Return the known server that the profile names; None for any other."""
    return KNOWN.get(profile.server.kind) if profile.server and profile.server.kind else None


def described_server(profile: Profile) -> ServerSpec | None:
    """Return the description of the profile's server; None where the engine is no described server."""
    return server_of(profile) if profile.engine is EngineKind.GENERIC else None


def server_of(profile: Profile) -> ServerSpec:
    """Return the description of the profile's server: its own keys over those of the known server."""
    own, known = profile.server or ServerSpec(), known_server(profile)
    if known is None:
        return own
    return known.spec.replace(**{key: getattr(own, key) for key in own.model_fields_set})
