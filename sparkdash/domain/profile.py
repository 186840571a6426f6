"""Profile: a file's promise of how to run one model on one engine; `server:` describes any other server. Pure."""

import hashlib
import json
import re
from enum import StrEnum
from functools import cached_property
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from sparkdash.domain.base import Frozen, WithCachedProperties
from sparkdash.domain.cluster import Topology
from sparkdash.domain.images import ImageBuild
from sparkdash.domain.node import LOCAL, NODE_NAME
from sparkdash.domain.request import ServerRoute
from sparkdash.units import GIB


class ServerKind(StrEnum):
    """Known server, whose description fills in what a profile leaves out."""

    ATLAS = "atlas"
    LUCEBOX = "lucebox"
    OLLAMA = "ollama"
    NIM = "nim"
    TEI = "tei"
    KOKORO = "kokoro"


SERVER_FIGURES = (
    "running", "waiting", "generated", "prompted", "prefilled", "prefix_hits", "prefix_queries", "kv_used",
    "kv_capacity", "decode_gauge", "drafts", "draft_tokens", "accepted", "preemptions", "moving", "ttft",
)  # fmt: skip
"""Figures that a profile may give the names of; fields of `MetricNames`."""


def _regular(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return pattern


UrlPath = Annotated[str, Field(pattern=r"^/[!-~]*$")]
Pattern = Annotated[str, Field(min_length=1), AfterValidator(_regular)]


class ServerMetrics(Frozen):
    """Figures that a server reports, by its own names."""

    path: UrlPath | None = "/metrics"
    """Path of the Prometheus text; null: the server reports nothing, and the gateway's own counts are all."""
    names: dict[str, str | tuple[str, ...]] = {}
    """Sample names by figure: running, waiting, generated, prompted, prefilled, prefix_hits, prefix_queries, kv_used,
    kv_capacity, decode_gauge, drafts, draft_tokens, accepted, preemptions, moving, ttft. Empty: found out by their
    prefixes.
    """
    is_live: bool = True
    """Whether the counters move while a request runs, and not only when it ends."""


class LogStage(Frozen):
    """Line of a server's log that reports a stage of its load."""

    stage: Literal["download", "weights", "compile", "kv", "graphs", "warmup", "http", "ready"]
    pattern: Pattern
    """Regular expression, searched anywhere in a line. It may name `pct`, or `done` and `total`."""
    fraction: float | None = Field(default=None, ge=0, le=1)
    """Share of the stage that such a line stands for, without `pct` and `done`."""


class LogFailure(Frozen):
    """Line of a server's log that tells why it does not come up."""

    pattern: Pattern
    """Regular expression, searched anywhere in a line, in any case."""
    message: str
    """Event as the beginning of a sentence."""
    hint: str = "The whole log is under `sparkdash logs {profile}`."
    """Remedy; {profile} stands for the profile's name."""
    code: Literal["engine_crash", "out_of_memory", "model_not_found", "token_refused", "no_gpu_device"] = "engine_crash"


class ServerSpec(Frozen):
    """Server behind `engine: generic`: how it is started, asked and ended."""

    kind: ServerKind | None = None
    """Known server, whose description fills in the keys that are left out here."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Port that the server listens on in its container, where it cannot be told another with {port}. The container
    gets a network of its own, and sparkdash publishes the port on 127.0.0.1.
    """
    keep_entrypoint: bool = False
    """Whether `command` holds only arguments for the image's own entrypoint."""
    routes: tuple[ServerRoute, ...] = (ServerRoute.CHAT,)
    """Routes that the server serves; requests for others are refused."""
    paths: dict[ServerRoute, UrlPath] = {}
    """Paths of routes at the server, where they differ from OpenAI's."""
    health: UrlPath = "/health"
    """Path that answers 200 once the server is up."""
    health_has: dict[str, str | bool | int | float] = {}
    """Keys and values that the health path's JSON must have, such as {status: ready}."""
    models: UrlPath | None = "/v1/models"
    """Path of the model list; null: the server has none."""
    version: UrlPath | None = None
    """Path of a JSON object with `version`."""
    ready_by: ServerRoute | Literal["health"] | None = None
    """Route whose answer proves that the model works, before the first client. Default: the first of `routes`.
    `health`: the health path alone decides.
    """
    ready_with: dict[str, Any] = {}
    """Keys that the request of that proof has besides, such as {voice: af_bella}."""
    metrics: ServerMetrics | None = None
    """Figures that the server reports. Default: found out by looking at the usual paths."""
    usage_in_stream: bool = False
    """Whether the server counts a stream's tokens when `stream_options.include_usage` asks it to."""
    log: tuple[LogStage, ...] = ()
    """Log lines that report the stages of a load."""
    failures: tuple[LogFailure, ...] = ()
    """Log lines that tell why a start failed."""
    stop_signal: Literal["SIGTERM", "SIGINT", "SIGQUIT"] = "SIGTERM"
    """Signal that asks the server to end."""
    stop_s: float | None = Field(default=None, gt=0, le=3600, allow_inf_nan=False)
    """Seconds from the signal to SIGKILL. Default: `stop_grace_s` of the settings."""

    @property
    def launch(self) -> dict[str, object]:
        return self.model_dump(mode="json", include={"kind", "port", "keep_entrypoint", "stop_signal"})


class SimSpeed(Frozen):
    """Decode and prefill speed of the simulated engine at one context length (tokens)."""

    context: int = Field(ge=0)
    decode_tok_s: float = Field(gt=0)
    prefill_tok_s: float = Field(gt=0)


class SimSpec(Frozen):
    """Behaviour of the simulated engine. Invented for rehearsal; nothing is a measurement."""

    load_s: float = Field(default=8.0, ge=0)
    speeds: tuple[SimSpeed, ...] = (SimSpeed.model_construct(context=0, decode_tok_s=40, prefill_tok_s=2000),)
    acceptance: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    """Chance of accepting the draft token at each position, given that the earlier ones were accepted."""
    speculation: str | None = None
    """Speculation that is imitated, as lists show it: "eagle3 k=1"; None: read from vLLM's arguments."""
    reasoning_tokens: int = Field(default=0, ge=0)
    """Number of leading reasoning tokens in a chat's answer."""
    memory_gib: float = Field(default=20.0, ge=0)
    kv_tokens: int = Field(default=262144, gt=0)
    time_scale: float = Field(default=1.0, gt=0)
    """Factor by which everything runs faster; for tests."""
    fault: str | None = None
    """Name of a fault (sparkdash.sim.faults)."""
    fault_after_tokens: int | None = Field(default=None, ge=1)
    """Token of an answer with which the fault begins; None: at once."""


class FixName(StrEnum):
    """Name of a correction, in the order of application."""

    CLAUDE_BILLING_LINE = "claude-billing-line"
    MESSAGES_SYSTEM_TURNS = "messages-system-turns"
    MESSAGES_NEW_KEYS = "messages-new-keys"
    RESPONSES_TOOL_TYPES = "responses-tool-types"
    RESPONSES_SEALED_REASONING = "responses-sealed-reasoning"
    RESPONSES_MAX_TOKENS = "responses-max-tokens"
    RESPONSES_CLIENT_METADATA = "responses-client-metadata"
    DEVELOPER_AS_SYSTEM = "developer-as-system"
    ONE_SYSTEM_MESSAGE = "one-system-message"
    ECHOED_PROGRESS = "echoed-progress"


class Published(Frozen):
    """A published figure for a profile. Rates are per second; None was not published."""

    workload: str
    source: str
    """Where a reader finds the figure: repository and file, or author, title and address."""
    decode_tok_s: float | None = None
    prefill_tok_s: float | None = None
    e2e_tok_s: float | None = None
    """Completion tokens divided by the whole time of the request, prefill included."""
    aggregate_tok_s: float | None = None
    tok_s: float | None = None
    """Rate without a stated definition; never compared with the others."""
    upto: float | None = None
    """Upper end of a published range."""
    kv_tokens: int | None = Field(default=None, ge=0)
    """Tokens that the KV cache holds."""
    prefix_hit_rate: Annotated[float | None, Field(ge=0, le=1)] = None
    math_score: Annotated[float | None, Field(ge=0, le=1)] = None
    start_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Seconds from the start to the first answer."""
    link_gbit_s: float | None = None
    """Bandwidth between two boxes, in Gb/s."""
    copy_mb_s: float | None = None
    """Rate of copying weights to the other box, in MB/s."""
    note: str | None = None


MOST_NODES = 8
"""Most nodes that one engine of a profile can run on."""

NODE_WORDS = frozenset({"hca", "gid_index", "peer_hca_map", "rank", "head"})
"""Words of `env`, as `{hca}`, for which each node of a launch has its own value."""

AUTO = "auto"
"""Name that clients use for the engine that runs now; no profile may have it."""

MODE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
"""Pattern of a mode's name."""

PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_-]*)\}")
"""Placeholder of one of the profile's models: "{drafter}"."""

ArgValue = bool | int | float | str | list[Any] | dict[str, Any] | None
"""Value of an engine flag. True is a bare flag; False and None leave it out; a dict or list is passed as JSON, except
the lists of the engine's `ListArgs`.
"""


def base_name(name: str) -> str:
    """Return the name of the profile that a replica belongs to: `qwen` of `qwen@spark2`; of any other its own."""
    return name.partition("@")[0]


class EngineKind(StrEnum):
    """Engine kind. Kind X is described in `sparkdash/engines/X`; its line here registers it."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    TRTLLM = "trtllm"
    TENSORFOLD = "tensorfold"
    GENERIC = "generic"
    """Any other server that sparkdash starts, as the profile's `server` describes it."""
    OPENAI = "openai"
    """Any server that already listens at `url`; sparkdash neither starts nor stops it."""
    REMOTE = "remote"
    """Remote service with OpenAI's API at `url`: a cloud, another box. Never started, stopped or watched."""
    SIM = "sim"
    """The simulated engine. All its figures are labelled simulated."""

    is_remote: bool
    is_external: bool
    """Whether its servers run by themselves, at a URL."""
    is_simulated: bool

    def __init__(self, value: str) -> None:
        self.is_remote = value == "remote"
        self.is_external = value in ("openai", "remote")
        self.is_simulated = value == "sim"


class ApiProtocol(StrEnum):
    """API of a chat: OpenAI's completions, OpenAI's responses, Anthropic's messages."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


class Ability(StrEnum):
    """Abilities of a model beside text."""

    VISION = "vision"
    TOOLS = "tools"
    REASONING = "reasoning"


class OnStuck(StrEnum):
    """Action on an engine that holds requests and does not move."""

    RESTART = "restart"
    """End the engine and start it again."""
    TELL = "tell"
    """Only report it."""


class ModelRef(Frozen):
    """Location of weights: a folder or file on this box, or a repository on the Hugging Face hub."""

    path: str | None = None
    hf: str | None = None
    revision: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> "ModelRef":
        if (self.path is None) == (self.hf is None):
            raise ValueError("give exactly one of 'path' and 'hf'")
        return self

    @property
    def ref(self) -> str:
        """Path or repository name that an engine is given."""
        return self.path or self.hf or ""


class MemoryNeed(Frozen):
    """Declared unified memory of an engine, in GiB. None is unknown, not zero."""

    weights_gib: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    kv_gib: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    overhead_gib: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    source: str | None = None
    """Source of the figures; readers distrust a figure without a source."""

    @property
    def total_bytes(self) -> int | None:
        """Weights + KV + overhead, in bytes; None while any term is unknown."""
        terms = (self.weights_gib, self.kv_gib, self.overhead_gib)
        known = [term for term in terms if term is not None]
        return int(sum(known) * GIB) if len(known) == len(terms) else None


class KeepKv(Frozen):
    """Conversations kept on disk while the engine is away."""

    max_gib: float = Field(gt=0, allow_inf_nan=False)
    """Most GiB of files."""


class Mount(Frozen):
    """A folder or file of the host made visible to the engine."""

    source: str
    target: str
    read_only: bool = True


class Profile(WithCachedProperties):
    """A model on an engine, with every variant and default already applied."""

    name: str
    """`family` or `family/variant`."""
    about: str = ""
    engine: EngineKind
    engine_version: str | None = None
    image: str | None = None
    build: ImageBuild | None = None
    """How the image is made, where no registry has it; `sparkdash build` carries it out."""
    command: tuple[str, ...] = ()
    """The program in the container, before the engine's arguments; empty: the adapter's default."""
    starter: dict[Literal["prepare", "start"], tuple[str, ...]] = {}
    """Commands of another program that launches the engine on this box, instead of `image` and `command`. `start` runs
    as long as the engine does; `prepare` ends before anything is stopped.
    """
    keep_entrypoint: bool = False
    """Whether the image's entrypoint runs the command, as NVIDIA's does, which chooses CUDA's compatibility libraries.
    """
    models: dict[str, ModelRef] = {}
    """`target` is the served model; args name the others as "{drafter}"."""
    serves: tuple[str, ...] = ()
    """Aliases for clients, unique over the catalog. `{NAME: PATH}` is a LoRA adapter: the target answers requests for
    NAME with it.
    """
    adapters: tuple[str, ...] = ()
    """LoRA adapters of `serves`; `models` has their weights under the same names."""
    args: dict[str, ArgValue] = {}
    fork_flags: tuple[str, ...] = ()
    """Flags of `args` that only this image's fork of the engine has; `profiles check` does not judge them."""
    env: dict[str, str] = {}
    env_from: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...] = ()
    """Variables handed on from the daemon's own environment, mainly tokens; their values are never written down."""
    mounts: tuple[Mount, ...] = ()
    tmpfs: tuple[str, ...] = ()
    gpu: bool = True
    """Whether the container gets the GPU; False for a CPU engine."""
    shm_size: str | None = None
    security: Literal["io_uring"] | None = None
    """`io_uring`: the container may use io_uring, as quick loaders do; podman's default refuses it to all others."""
    keep_kv: KeepKv | None = None
    """The KV cache of its conversations is saved when the engine leaves, and restored when it is back."""
    url: str | None = None
    """Address of an engine of kind `openai`, with or without /v1. For a `remote`: the base URL as its provider writes
    it, mostly with /v1.
    """
    model_id: str | None = None
    """Name of the model on an attached server or remote service. Default: for a `remote` the profile's own name, for an
    `openai` the name that the server lists.
    """
    key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Variable of the daemon's environment with the key of a `remote`. The key itself is never written down."""
    context: int | None = Field(default=None, gt=0)
    """Context length in tokens, when it is not among the engine's arguments."""
    memory: MemoryNeed = MemoryNeed.model_construct()
    nodes: int = Field(default=1, ge=1)
    """Nodes that one engine of the profile needs; of several numbers, as `[2, 4]`, the largest."""
    fewer: dict[int, dict[str, ArgValue]] = {}
    """The engine's arguments on each smaller number of nodes."""
    parallel: dict[Literal["tp", "pp", "dp", "ep", "dcp"], Annotated[int, Field(ge=1)]] = {}
    """Ways to split the model, as the recipe says: tensor, pipeline, data, expert and decode context parallel. They
    become the engine's own flags among `args`. For several numbers of nodes a size for each: `{tp: [2, 4]}`.
    """
    topologies: tuple[Topology, ...] = ()
    """How the nodes may be connected: direct, ring, line, switch. Default: all but a line."""
    node: Annotated[str, Field(pattern=NODE_NAME)] | None = None
    """Node that a profile for one node must run on; None: any."""
    replicas: int = Field(default=1, ge=1, le=MOST_NODES)
    """Nodes that each run an engine of the profile, this box first; a conversation stays on one of them."""
    env_by_node: dict[Annotated[str, Field(pattern=NODE_NAME)], dict[str, str]] = {}
    """Variables on one node only, over those of `env`: `{spark2: {NCCL_IB_GID_INDEX: "5"}}`."""
    ray_command: tuple[str, ...] = ()
    """Program `ray` in the image, with its first arguments, for an engine that Ray spreads over nodes. Default: ray."""
    request: dict[str, Any] = {}
    """Defaults for keys that the client did not set in a request's body."""
    request_set: dict[str, Any] = {}
    """Keys set in every request's body, over the client's values; objects are merged key by key."""
    request_strip: tuple[str, ...] = ()
    """Keys removed from every request's body."""
    modes: dict[Annotated[str, Field(pattern=MODE.pattern)], dict[str, Any]] = {}
    """Named sets of request keys: model `NAME:MODE` applies them like `request_set`, without a swap."""
    mends_off: tuple[FixName, ...] = ()
    """Corrections of requests (docs/requests.md) to switch off for this profile."""
    mirror_reasoning: bool = False
    """Whether answers repeat the engine's `reasoning` as `reasoning_content`."""
    first_byte_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Limit in seconds for the first byte of an answer. Default: `first_byte_s` of the settings."""
    between_bytes_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Limit in seconds for the silence between two pieces of an answer. Default: `between_bytes_s` of the settings."""
    on_stuck: OnStuck = OnStuck.RESTART
    protocols: tuple[ApiProtocol, ...] | None = None
    """APIs that the engine speaks; others are translated. Default: what is known of the engine and its version."""
    can: tuple[Ability, ...] | None = None
    """Abilities of the model, where neither flags nor weights tell it. Default: what is known of them."""
    fallbacks: tuple[str, ...] = ()
    """Profiles that answer when this one cannot, in this order."""
    published: tuple[Published, ...] = ()
    cannot_run: str | None = None
    """Why this box cannot run the published system; the profile stays visible and is never started."""
    nearest: str | None = None
    """Profile to use instead of one that cannot run, or whose image takes long to build."""
    sim: SimSpec | None = None
    server: ServerSpec | None = None
    """Description of the server of an engine of kind `generic`."""
    silence: dict[str, Annotated[str, Field(min_length=1)]] = {}
    """Rules of `profiles check` that this profile breaks on purpose, each with the reason."""
    source: str = ""
    """file:line of the profile."""
    built_by: str | None = None
    """Profile in whose file `build` stands; several profiles may use one image."""

    @model_validator(mode="before")
    @classmethod
    def _split_adapters(cls, given: Any) -> Any:
        """Move the paths that `serves` names to the models."""
        items = given.get("serves") if isinstance(given, dict) else None
        found = _adapters(items) if isinstance(items, list) else {}
        if not found:
            return given
        models = dict(given.get("models") or {})
        if taken := sorted(found.keys() & models.keys()):
            raise ValueError(f"serves: {taken[0]!r} is the name of a model already")
        names = [name for item in items or () for name in (item if isinstance(item, dict) else [item])]
        return given | {"serves": names, "models": models | found, "adapters": list(found)}

    @model_validator(mode="before")
    @classmethod
    def _start_here(cls, given: Any) -> Any:
        """Keep what another program starts on this box, where it is watched."""
        return {"node": LOCAL} | given if isinstance(given, dict) and given.get("starter") else given

    def on(self, count: int) -> "Profile":
        """Return the profile as it is started on `count` nodes."""
        args = self.fewer.get(count)
        return self if args is None else self.replace(nodes=count, args=args, fewer={})

    @property
    def launches(self) -> "tuple[Profile, ...]":
        """The profile on each number of nodes that it allows, the largest first."""
        return (self, *map(self.on, self.fewer))

    def adapter(self, name: str) -> str | None:
        """Return the LoRA adapter that a client's name asks for, with or without a prefix and a mode."""
        words = (name, tail := name.rsplit("/", 1)[-1], tail.rpartition(":")[0])
        return next((one for one in self.adapters if one in words), None)

    def mode(self, name: str) -> str | None:
        """Return the mode that a client's name asks of this profile (`NAME:MODE`), or None."""
        written = name.rsplit("/", 1)[-1]
        _, colon, mode = written.rpartition(":")
        known = (self.name, *self.serves)
        return mode if colon and mode in self.modes and not {name, written} & {*known} else None

    @property
    def family(self) -> str:
        return base_name(self.name).split("/", 1)[0]

    @property
    def variant(self) -> str | None:
        return self.name.split("/", 1)[1] if "/" in self.name else None

    @property
    def used_models(self) -> tuple[ModelRef, ...]:
        """Target and every model that the command line or environment names."""
        named = placeholders([self.args, self.env, list(self.command)]) | {"target", *self.adapters}
        return tuple(ref for name, ref in self.models.items() if name in named)

    @property
    def weights(self) -> tuple[ModelRef, ...]:
        """Used models at their host paths: own mounts are resolved to their source; paths in a volume are left out."""
        found = (on_host(ref, self.mounts) for ref in self.used_models)
        return tuple(ref for ref in found if ref.hf or ref.ref.startswith("/"))

    @property
    def fetches_nothing(self) -> str | None:
        """Why no image and no weights are fetched for this profile; None when they are."""
        if self.engine is EngineKind.SIM:
            return "it is simulated"
        if self.engine is EngineKind.REMOTE:
            return f"it is a service elsewhere, at {self.url}"
        return f"its engine is not ours, and listens at {self.url}" if self.engine is EngineKind.OPENAI else None

    @property
    def published_start_s(self) -> float | None:
        """Seconds of a start by its source; of a simulated engine by its own speed."""
        if self.sim is not None:
            return self.sim.load_s / self.sim.time_scale
        return next((row.start_s for row in self.published if row.start_s is not None), None)

    @cached_property
    def fingerprint(self) -> str:
        """Hash (12 hex digits) of everything that changes the running engine: equal hashes mean the same launch."""
        launch = self.model_dump(
            mode="json",
            include={
                "serves", "engine", "engine_version", "image", "command", "models", "args", "env", "mounts",
                "tmpfs", "gpu", "shm_size", "url", "nodes", "sim",
            },
        )  # fmt: skip
        if self.env_from:  # only then: what ran before there were such names keeps its fingerprint
            launch["env_from"] = self.env_from
        # likewise: nothing that ran before had these
        launch |= {
            key: value
            for key in (
                "node",
                "adapters",
                "env_by_node",
                "ray_command",
                "keep_entrypoint",
                "security",
                "fewer",
                "starter",
            )
            if (value := getattr(self, key))
        }
        if self.keep_kv:
            launch["keep_kv"] = True
        if self.engine is EngineKind.SIM:  # started with it; a real engine is started with its arguments
            launch["context"] = self.context
        if self.engine is EngineKind.OPENAI and self.model_id is not None:
            launch["model_id"] = self.model_id
        if self.engine is EngineKind.GENERIC:
            launch |= {"server": (self.server or ServerSpec()).launch, "model_id": self.model_id}
        if self.engine is EngineKind.REMOTE:
            launch |= {"model_id": self.model_id, "key_env": self.key_env}
        text = json.dumps(launch, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def on_host(ref: ModelRef, mounts: tuple[Mount, ...]) -> ModelRef:
    """Return where a path of the container is on this box."""
    path = PurePosixPath(ref.path or "")
    over = [mount for mount in mounts if ref.path and path.is_relative_to(mount.target)]
    if not over:
        return ref
    mount = max(over, key=lambda one: len(one.target))
    return ref.replace(path=str(PurePosixPath(mount.source) / path.relative_to(mount.target)))


def _adapters(serves: list[Any]) -> dict[str, Any]:
    """Return the adapters among the aliases, with their places as `models` has them."""
    named = [pair for item in serves if isinstance(item, dict) for pair in item.items()]
    return {name: place if isinstance(place, dict) else {"path": place} for name, place in named}


def placeholders(value: Any) -> set[str]:
    """Collect the names that occur as "{name}" anywhere in `value`."""
    if isinstance(value, str):
        return set(PLACEHOLDER.findall(value))
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return set().union(*(placeholders(item) for item in value))
    return set()


class ProfileSummary(Frozen):
    """Profile as lists and clients see it."""

    name: str
    about: str
    engine: EngineKind
    engine_version: str | None
    image: str | None
    build: ImageBuild | None = None
    built_by: str | None = None
    weights: tuple[ModelRef, ...] = ()
    """Models that a start reads."""
    serves: tuple[str, ...]
    modes: tuple[str, ...] = ()
    context: int | None
    needs_bytes: int | None
    nodes: int
    fewer: dict[int, str] = {}
    """Fingerprints of its launches on fewer nodes."""
    fallbacks: tuple[str, ...] = ()
    cannot_run: str | None
    nearest: str | None
    published_decode_tok_s: float | None
    """Best published decode rate, for the list's column."""
    published_note: str | None
    """Workload and document of that rate."""
    speculation: str | None
    """Speculation such as "eagle3 k=1" or "mtp k=2"; None without."""
    fingerprint: str
    simulated: bool
    sees: bool | None = None
    """Whether the model reads images; None while unknown."""
    server: str | None = None
    """Name of the known server of an engine of kind `generic`; None for any other."""

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Fingerprints of its launches, on whatever number of nodes."""
        return (self.fingerprint, *self.fewer.values())

    @property
    def least_nodes(self) -> int:
        return min((self.nodes, *self.fewer))

    def fits_idle_box(self, total: int | None, reserve: int) -> bool:
        """Whether a start fits into an idle box of `total` bytes (None: unknown) less `reserve`.

        False while the need is unknown, for a profile of several nodes, and for a server that sparkdash does not start.
        """
        if self.cannot_run is not None or self.engine.is_external or self.nodes != 1 or self.needs_bytes is None:
            return False
        return total is None or self.needs_bytes + reserve <= total
