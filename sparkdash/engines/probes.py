"""Paths and metric names by which an engine's server is watched. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Probes:
    """Paths below the engine's root URL. None: the engine has no such route."""

    alive: str
    """Answers 200 when the HTTP server is up; cheap enough for 1 Hz (never SGLang's /health)."""
    models: str | None = "/v1/models"
    alive_has: Mapping[str, str | bool | int | float] = field(default_factory=dict)
    version: str | None = None
    """JSON with a "version" key."""
    chat: str | None = "/v1/chat/completions"
    """Path of the warm-up generation."""


@dataclass(frozen=True, slots=True)
class MetricNames:
    """Engine's own names of the samples that telemetry derives from; empty: the engine does not report the figure.

    Each entry lists candidates, newest first; the first present wins. Counters are summed over labels.
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
    """(label, value) that picks the computed tokens. A candidate without the label is summed whole; so below."""
    prompted: tuple[str, ...] = ()
    """Counter of all prompt tokens; less `prefix_hits` it replaces an absent `prefilled` (vLLM before 0.16)."""
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
    """Further counters and gauges, all that are present, that move when the engine works, and only then."""
    copies: tuple[str, ...] = ("tp_rank", "pp_rank")
    """Labels of copies of one replica's figures: of samples that differ in these alone the largest counts."""
    is_live: bool = True
    """Whether these figures move while a request runs, and not only when one ends."""
    drafts: tuple[str, ...] = ()
    draft_tokens: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    accepted_at: tuple[str, ...] = ()
    drafted_at: tuple[str, ...] = ()
    """Counter of drafted tokens by draft position; the most drafted one stands in for an absent `drafts`."""
    verified: tuple[str, ...] = ()
    """Counter of verified drafts with Atlas's labels `k` and `outcome`, in place of all of the above."""
    position_label: str = "position"
    """Label of `accepted_at` and `drafted_at` that holds the position, counted from 0."""
    acceptance_gauge: tuple[str, ...] = ()
    acceptance_length_gauge: tuple[str, ...] = ()
    """Gauges that already hold the ratio (SGLang); used when the counters are absent."""
    ttft: tuple[str, ...] = ()
    """Histogram's base name, seconds."""
    itl: tuple[str, ...] = ()
    """Histogram's base name, seconds: its sum grows by the time of each step of each request that decodes."""
    preemptions: tuple[str, ...] = ()
    started: tuple[str, ...] = ("process_start_time_seconds",)
    """A change of this gauge means that the engine restarted."""
    slots: str | None = None
    """Path of llama.cpp's /slots, whose token counts move during a request; the counters move only at its end."""
    moving_without_slots: tuple[str, ...] = ()
    """As `moving`, where /slots is switched off."""
    health: str | None = None
    """Path of TensorFold's /health, whose JSON has its pool of KV and counters that some builds' metrics lack."""
