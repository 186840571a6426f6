"""Profile: a file's promise of how to run one model on one engine.

Owns: the resolved profile (variants already applied) and its fingerprint. How YAML becomes one is the
catalog's business; how one becomes a command line is the engine adapter's.
"""

from __future__ import annotations

import hashlib
import json
import re
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import Field, model_validator

from sparkdash.domain.base import Frozen
from sparkdash.domain.mend import MendName
from sparkdash.units import GIB

AUTO = "auto"
"""The name that clients give for whatever runs now; no profile may have it."""

MODE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
"""How a mode may be called."""

PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_-]*)\}")
"""How a profile's words name one of its models: "{drafter}"."""

ArgValue = bool | int | float | str | list[Any] | dict[str, Any] | None
"""An engine flag's value. True is a bare flag, False and None leave it out, a dict or list is passed as JSON,
but for the lists of `domain.lists`."""


class EngineKind(StrEnum):
    """The dialect that an engine speaks."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    TRTLLM = "trtllm"
    OPENAI = "openai"
    """Anything that already listens at `url`; sparkdash neither starts nor stops it."""
    REMOTE = "remote"
    """A service elsewhere that speaks OpenAI's API at `url`: a cloud, another box. It is never started, stopped or looked after."""
    SIM = "sim"
    """The simulated engine. Every figure it gives is labelled simulated."""


class ApiProtocol(StrEnum):
    """How clients ask for a chat: OpenAI's completions, OpenAI's responses, Anthropic's messages."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


class OnStuck(StrEnum):
    """What is done about an engine that holds requests and does not move."""

    RESTART = "restart"
    """It is ended and brought up again."""
    TELL = "tell"
    """It is told and nothing else."""


class ModelRef(Frozen):
    """Where weights are: a folder or file on this box, or a repository on the Hugging Face hub."""

    path: str | None = None
    hf: str | None = None
    revision: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> ModelRef:
        if (self.path is None) == (self.hf is None):
            raise ValueError("give exactly one of 'path' and 'hf'")
        return self

    @property
    def ref(self) -> str:
        """What an engine is given: the path or the repository's name."""
        return self.path or self.hf or ""


class MemoryNeed(Frozen):
    """What an engine takes from the unified memory, in GiB. None is unknown, not zero."""

    weights_gib: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    kv_gib: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    overhead_gib: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    source: str | None = None
    """Where the figures come from; a figure without a source is not believed by readers."""

    @property
    def total_bytes(self) -> int | None:
        """Weights + KV + overhead, in bytes; None while any term is unknown."""
        terms = (self.weights_gib, self.kv_gib, self.overhead_gib)
        known = [term for term in terms if term is not None]
        return int(sum(known) * GIB) if len(known) == len(terms) else None


class Published(Frozen):
    """One published figure for a profile. Rates are per second; None was not published."""

    workload: str
    source: str
    """The name of the document that the figure was read in."""
    decode_tok_s: float | None = None
    prefill_tok_s: float | None = None
    e2e_tok_s: float | None = None
    """Completion tokens divided by the whole time of the request, prefill included."""
    aggregate_tok_s: float | None = None
    tok_s: float | None = None
    """A rate of which the source does not say what was measured; never compared with the others."""
    upto: float | None = None
    """Upper end, where a range was published for the row's one figure."""
    kv_tokens: int | None = Field(default=None, ge=0)
    """Tokens that the KV cache holds."""
    prefix_hit_rate: Annotated[float | None, Field(ge=0, le=1)] = None
    math_score: Annotated[float | None, Field(ge=0, le=1)] = None
    note: str | None = None


class SimSpeed(Frozen):
    """Decode and prefill speed of the simulated engine at one context length (tokens)."""

    context: int = Field(ge=0)
    decode_tok_s: float = Field(gt=0)
    prefill_tok_s: float = Field(gt=0)


class SimSpec(Frozen):
    """How the simulated engine should behave. All of it is invented for rehearsal; none of it is a measurement."""

    load_s: float = Field(default=8.0, ge=0)
    speeds: tuple[SimSpeed, ...] = (SimSpeed(context=0, decode_tok_s=40, prefill_tok_s=2000),)
    acceptance: tuple[Annotated[float, Field(ge=0, le=1)], ...] = ()
    """Chance that the draft token at each position is accepted, given that those before it were."""
    reasoning_tokens: int = Field(default=0, ge=0)
    """The first so many tokens of a chat's answer are reasoning."""
    memory_gib: float = Field(default=20.0, ge=0)
    kv_tokens: int = Field(default=262144, gt=0)
    time_scale: float = Field(default=1.0, gt=0)
    """Everything runs this many times faster than it says; for tests."""
    fault: str | None = None
    """One of the zoo's names (sparkdash.sim.engine.faults)."""
    fault_after_s: float | None = Field(default=None, ge=0)
    """The fault begins when the engine has served for so long; not for faults of its start."""
    fault_after_tokens: int | None = Field(default=None, ge=1)
    """The fault begins with this token of an answer; not for faults of its start."""


class Mount(Frozen):
    """A folder or file of the host made visible to the engine."""

    source: str
    target: str
    read_only: bool = True


class Profile(Frozen):
    """How to run one model on one engine, with every variant and default already applied."""

    name: str
    """`family` or `family/variant`."""
    about: str = ""
    engine: EngineKind
    engine_version: str | None = None
    image: str | None = None
    command: tuple[str, ...] = ()
    """The program in the container that the engine's arguments follow; empty: the adapter's default."""
    models: dict[str, ModelRef] = {}
    """`target` is the model served; `drafter` and others can be named in args as "{drafter}"."""
    serves: tuple[str, ...] = ()
    """Aliases that clients may use; unique over the catalog."""
    args: dict[str, ArgValue] = {}
    env: dict[str, str] = {}
    env_from: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], ...] = ()
    """Names of variables handed on from the daemon's own environment, tokens above all: their values are never written down."""
    mounts: tuple[Mount, ...] = ()
    tmpfs: tuple[str, ...] = ()
    gpu: bool = True
    """False: no device is handed to the container (a CPU engine)."""
    shm_size: str | None = None
    url: str | None = None
    """Address of an engine of kind `openai`, with or without /v1. For a `remote`: the base URL as its provider writes
    it, mostly with /v1.
    """
    model_id: str | None = None
    """Name of the model on an attached server or remote service. Not given: for a `remote` the profile's own name, for
    an `openai` the name that the server lists.
    """
    key_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    """Name of the variable in the daemon's environment that holds the key of a `remote`. The key itself is never written down."""
    context: int | None = Field(default=None, gt=0)
    """Context length in tokens, when it is not among the engine's arguments."""
    memory: MemoryNeed = MemoryNeed()
    nodes: int = Field(default=1, ge=1)
    request: dict[str, Any] = {}
    """Defaults merged into a request's body where the client did not set the key."""
    request_set: dict[str, Any] = {}
    """Set in a request's body whatever the client wrote; an object is laid over the client's own, key by key."""
    request_strip: tuple[str, ...] = ()
    """Keys taken out of a request's body."""
    modes: dict[Annotated[str, Field(pattern=MODE.pattern)], dict[str, Any]] = {}
    """Ways to ask the running engine: as model `NAME:MODE`, with these keys set as `request_set` does; no swap."""
    mends_off: tuple[MendName, ...] = ()
    """Mends of requests (docs/requests.md) that this profile's engine does not need."""
    mirror_reasoning: bool = False
    """A chat's answer says what its engine calls `reasoning` as `reasoning_content`, too."""
    first_byte_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Limit in seconds for the first byte of an answer. Not given: `first_byte_s` of the box."""
    between_bytes_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Limit in seconds for the silence between two pieces of an answer. Not given: `between_bytes_s` of the box."""
    on_stuck: OnStuck = OnStuck.RESTART
    protocols: tuple[ApiProtocol, ...] | None = None
    """What its engine speaks; the rest is translated. Not given: what is known of the engine and its version."""
    fallbacks: tuple[str, ...] = ()
    """Profiles that answer in its place, tried in this order, when it cannot."""
    published: tuple[Published, ...] = ()
    cannot_run: str | None = None
    """Why this system cannot run as published; it stays visible and is never started."""
    nearest: str | None = None
    """The profile to use instead of one that cannot run."""
    sim: SimSpec | None = None
    silence: dict[str, Annotated[str, Field(min_length=1)]] = {}
    """Rules of `profiles check` that this profile breaks on purpose, each with the reason."""
    source: str = ""
    """file:line it was read from."""

    def mode(self, name: str) -> str | None:
        """The mode that a client's name for this profile ends with (`NAME:MODE`), if it does."""
        written = name.rsplit("/", 1)[-1]
        _, colon, mode = written.rpartition(":")
        known = (self.name, *self.serves)
        return mode if colon and mode in self.modes and not {name, written} & {*known} else None

    @property
    def family(self) -> str:
        """The name without its variant."""
        return self.name.split("/", 1)[0]

    @property
    def variant(self) -> str | None:
        """The variant's own name, or None for the base of the family."""
        return self.name.split("/", 1)[1] if "/" in self.name else None

    @property
    def used_models(self) -> tuple[ModelRef, ...]:
        """The target and every model that the command line or environment names; others are not this launch's business."""
        named = placeholders([self.args, self.env, list(self.command)]) | {"target"}
        return tuple(ref for name, ref in self.models.items() if name in named)

    @property
    def weights(self) -> tuple[ModelRef, ...]:
        """The same as they lie on this box: a path that an own mount brings in is under its source, or left out in a volume."""
        found = (_on_host(ref, self.mounts) for ref in self.used_models)
        return tuple(ref for ref in found if ref.hf or ref.ref.startswith("/"))

    @property
    def fetches_nothing(self) -> str | None:
        """Why no image and no weights are fetched for it; None when they are."""
        if self.engine is EngineKind.SIM:
            return "it is simulated"
        if self.engine is EngineKind.REMOTE:
            return f"it is a service elsewhere, at {self.url}"
        return f"its engine is not ours, and listens at {self.url}" if self.engine is EngineKind.OPENAI else None

    @property
    def fingerprint(self) -> str:
        """12 hex digits over everything that changes the running engine: two equal ones are the same launch."""
        launch = self.model_dump(
            mode="json",
            include={
                "serves", "engine", "engine_version", "image", "command", "models", "args", "env", "mounts",
                "tmpfs", "gpu", "shm_size", "url", "nodes", "sim",
            },
        )  # fmt: skip
        if self.env_from:  # only then: what ran before there were such names keeps its fingerprint
            launch["env_from"] = self.env_from
        if self.engine is EngineKind.SIM:  # started with it; a real engine is started with its arguments
            launch["context"] = self.context
        if self.engine is EngineKind.OPENAI and self.model_id is not None:
            launch["model_id"] = self.model_id
        if self.engine is EngineKind.REMOTE:
            launch |= {"model_id": self.model_id, "key_env": self.key_env}
        text = json.dumps(launch, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _on_host(ref: ModelRef, mounts: tuple[Mount, ...]) -> ModelRef:
    path = PurePosixPath(ref.path or "")
    over = [mount for mount in mounts if ref.path and path.is_relative_to(mount.target)]
    if not over:
        return ref
    mount = max(over, key=lambda one: len(one.target))
    return ref.replace(path=str(PurePosixPath(mount.source) / path.relative_to(mount.target)))


def placeholders(value: Any) -> set[str]:
    """The names that occur as "{name}" anywhere in `value`."""
    if isinstance(value, str):
        return set(PLACEHOLDER.findall(value))
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return set().union(*(placeholders(item) for item in value))
    return set()


class ProfileSummary(Frozen):
    """What lists and clients see of a profile."""

    name: str
    about: str
    engine: EngineKind
    engine_version: str | None
    image: str | None
    weights: tuple[ModelRef, ...] = ()
    """The models that a start reads."""
    serves: tuple[str, ...]
    modes: tuple[str, ...] = ()
    context: int | None
    needs_bytes: int | None
    nodes: int
    cannot_run: str | None
    nearest: str | None
    published_decode_tok_s: float | None
    """The best published decode rate, for the list's column."""
    published_note: str | None
    """Which workload and document that rate is of."""
    speculation: str | None
    """"eagle3 k=1", "mtp k=2", …; None when the profile does not speculate."""
    fingerprint: str
    simulated: bool
    sees: bool | None = None
    """Does it read pictures? None is not known."""
