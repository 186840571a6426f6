"""EngineAdapter: the contract of every dialect.

An adapter is a stateless value. It turns a profile into a container, names the paths to probe, maps the engine's
metric names to those of sparkdash, and reads its log. It never talks to an engine itself.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.node import NodeLaunch
from sparkdash.domain.profile import ApiProtocol, EngineKind, Profile
from sparkdash.engines.known_flags import KnownFlags


@dataclass(frozen=True, slots=True)
class Probes:
    """Paths below the engine's root URL. None: the engine has no such route."""

    alive: str
    """Answers 200 when the HTTP server is up; cheap enough for 1 Hz (never SGLang's /health)."""
    models: str | None = "/v1/models"
    alive_has: Mapping[str, str | bool | int | float] = field(default_factory=dict)
    """Keys and values that the JSON of `alive` must have."""
    version: str | None = None
    """JSON with a "version" key."""
    chat: str | None = "/v1/chat/completions"
    """Path of the warm-up generation."""


@dataclass(frozen=True, slots=True)
class MetricNames:
    """Engine's own names of the samples that telemetry derives from.

    Each entry lists candidates, newest first; the first present wins. Counters are summed over labels. Empty: the
    engine does not report the figure.
    """

    path: str | None
    """Path of the text exposition; None when there is none."""
    recognised: bool = True
    """False for a server that may be any engine: `expositions` finds out whose names it uses."""
    generated: tuple[str, ...] = ()
    """Counter of generated tokens that moves while a request runs."""
    prefilled: tuple[str, ...] = ()
    """Counter of prompt tokens really computed."""
    prefilled_label: tuple[str, str] | None = None
    """(label, value) that picks the computed tokens out of `prefilled`. A candidate without the label is summed whole;
    so are the candidates of the label fields below.
    """
    prompted: tuple[str, ...] = ()
    """Counter of all prompt tokens, cached ones included. `prompted` less `prefix_hits` replaces an absent `prefilled`
    (vLLM before 0.16).
    """
    timed_prompt: tuple[str, ...] = ()
    """Counter of computed prompt tokens that moves together with `prompt_seconds`."""
    prompt_seconds: tuple[str, ...] = ()
    """Counter of the seconds spent computing prompts, summed over requests."""
    generated_label: tuple[str, str] | None = None
    decode_gauge: tuple[str, ...] = ()
    """Gauge of the rate itself in tokens per second; used where `generated` is absent (SGLang before 0.5.8)."""
    prefix_hits: tuple[str, ...] = ()
    prefix_hits_label: tuple[str, tuple[str, ...]] | None = None
    """(label, values) summed as hits."""
    prefix_queries: tuple[str, ...] = ()
    """Counter of looked-up tokens."""
    prefix_misses: tuple[str, ...] = ()
    """When set and present, queries = hits + misses; otherwise `prefix_queries` counts."""
    prefix_misses_label: tuple[str, tuple[str, ...]] | None = None
    """(label, values) summed as misses."""
    kv_used: tuple[str, ...] = ()
    """Gauge 0..1; the mean over labels."""
    kv_capacity: tuple[str, ...] = ()
    """Gauge in tokens."""
    kv_info: tuple[str, ...] = ()
    """Info series with labels kv_cache_size_tokens, or num_gpu_blocks and block_size."""
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    """Gauge of those waiting requests that wait for a grammar, remote KV or the like, and not for room."""
    deferred_label: tuple[str, str] | None = None
    awake: tuple[str, ...] = ()
    """Gauge that is 0 while the engine sleeps."""
    awake_label: tuple[str, str] | None = None
    moving: tuple[str, ...] = ()
    """Further counters and gauges whose change shows that the engine works. All that are present are taken. None of
    them may move in an engine that does no work.
    """
    is_live: bool = True
    """Whether these figures move while a request runs, and not only when one ends."""
    drafts: tuple[str, ...] = ()
    draft_tokens: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    accepted_at: tuple[str, ...] = ()
    """Counter of accepted tokens by draft position."""
    drafted_at: tuple[str, ...] = ()
    """Counter of drafted tokens by draft position. Without `drafts`, the count of the most drafted position is the
    number of drafts.
    """
    verified: tuple[str, ...] = ()
    """Counter of verified drafts with Atlas's labels `k` and `outcome`, in place of all of the above."""
    position_label: str = "position"
    """Label of `accepted_at` and `drafted_at` that holds the position, counted from 0."""
    acceptance_gauge: tuple[str, ...] = ()
    acceptance_length_gauge: tuple[str, ...] = ()
    """Gauges that already hold the ratio (SGLang); used when the counters are absent."""
    ttft: tuple[str, ...] = ()
    """Histogram's base name, seconds."""
    preemptions: tuple[str, ...] = ()
    started: tuple[str, ...] = ("process_start_time_seconds",)
    """A change of this gauge means that the engine restarted."""
    slots: str | None = None
    """Path of llama.cpp's /slots, whose token counts move during a request; the counters move only at its end."""
    moving_without_slots: tuple[str, ...] = ()
    """As `moving`, where /slots is switched off."""


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """Supervisor's decisions about one launch, which an adapter needs beside the profile."""

    port: int
    containerised: bool
    """Whether the engine runs in a container. The process runtime has no image, no mounts, and host paths as they are.
    """
    hf_home: str
    """Owner's Hugging Face cache on the host, mounted when a model comes from the hub."""
    cache_dir: str
    """Host folder of this image's compile caches, mounted so that the second start is fast."""
    labels: dict[str, str] = field(default_factory=dict)
    flags: KnownFlags | None = None
    """Flags that the profile's program lists in its `--help`; None while not known."""
    nodes: tuple[NodeLaunch, ...] = ()
    """Nodes of the launch, the one that serves first; empty: the daemon's own box alone."""
    master_port: int = 0
    """Free port on the serving node's link by which the ranks of several nodes find each other."""


@dataclass(frozen=True, slots=True)
class HelpCommand:
    """Command that lists the flags of a profile's program."""

    argv: tuple[str, ...]
    quick: bool
    """Whether the program answers within a moment, so that a start may wait for it. Others load their libraries for
    half a minute.
    """


class EngineAdapter(Protocol):
    """Dialect of one engine kind."""

    kind: EngineKind
    probes: Probes
    metrics: MetricNames
    managed: bool
    """False when sparkdash neither starts nor stops such engines (kind `openai`)."""

    death_words: tuple[bytes, ...]
    """Words in an error body or error event that mean that the engine behind the HTTP server is dead. Empty where the
    connection merely breaks.
    """

    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None]
    """First version with each protocol; None: no known release has it. A protocol that is absent here is unknown, or
    as old as the engine.
    """

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """Build the container for `profile`.

        Raises:
            ProfileError: the profile lacks what this engine needs (an image, a model).
        """
        ...

    def help(self, profile: Profile) -> HelpCommand | None:
        """Build the command that lists the program's flags.

        None when the command may be another program, which would ignore `--help` and serve.
        """
        ...

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        """List every model name that the engine accepts: the profile's name and its aliases. The warm-up uses the
        first.
        """
        ...

    def context(self, profile: Profile) -> int | None:
        """Configured context length in tokens, known without starting the engine."""
        ...

    def speculation(self, profile: Profile) -> str | None:
        """Describe the speculation, such as "eagle3 k=1"; None without."""
        ...

    def read_log(self, line: str) -> LoadProgress | None:
        """Read the progress that one line of the start-up log reports, or None. `line` has no newline or carriage
        return.
        """
        ...

    def kv_dtype(self, lines: Sequence[str]) -> str | None:
        """Read the KV cache's element type, as the engine resolved it, from its start-up log; None when it is not
        there.
        """
        ...

    def classify(self, lines: Sequence[str], exit_code: int | None) -> Failure:
        """Classify a failed start by its last log lines; code engine_crash when no known cause matches."""
        ...
