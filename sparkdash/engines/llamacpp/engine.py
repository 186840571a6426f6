"""Dialect of llama.cpp's llama-server, builds of 2025 and 2026.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.profile import ApiProtocol, ArgValue, EngineKind, Profile
from sparkdash.engines import argv, containers, logs
from sparkdash.engines.adapter import HelpCommand, LaunchContext, MetricNames, Probes
from sparkdash.engines.known_flags import KnownFlags
from sparkdash.engines.logs import phrase

DEFAULT_PROGRAM = ("llama-server",)

# /metrics is off unless asked for.
DEFAULT_FLAGS: tuple[tuple[str, ArgValue], ...] = (("metrics", True),)
# Mapped files load ten times slower on a Spark (224 s against 22 s). Builds of autumn 2026 have --load-mode, older ones
# --no-mmap, and each refuses the other's flag. A build whose flags are unknown gets both as variables: it ignores the
# one that it does not know.
UNMAPPED_ENV = {"LLAMA_ARG_LOAD_MODE": "none", "LLAMA_ARG_NO_MMAP": "1"}

# In single-model mode the log tells no percentage.
PHRASES = (
    phrase("weights", r"load_model: loading (?:draft )?model '|loading draft model '", 0.0),
    phrase("weights", r"load_tensors: offloaded \d+/\d+ layers"),
    phrase("kv", r"llama_kv_cache\w*: +size = +[\d.]+ MiB"),
    phrase("warmup", r"warming up the model"),
    phrase("kv", r"initializing, n_slots = \d+, n_ctx_slot = \d+", 1.0),
    phrase("http", r"model loaded$|HTTP server is listening"),
    phrase("ready", r"(?:server is |router server is )?listening on http\S+", 1.0),
)

CAUSES = (
    logs.cause(
        "out_of_memory",
        r"failed to allocate (?:CUDA\d* )?buffer|unable to allocate CUDA|ggml_backend_cuda_buffer_type_alloc_buffer",
        "It could not allocate its buffers",
        "Lower `ctx-size` or `parallel` in the profile, or stop what else holds memory.",
    ),
)


# The target's cache is made before a drafter's.
KV = re.compile(r"llama_kv_cache\w*: size = .*\bK \((\w+)\): .*\bV \((\w+)\):")


class LlamaCpp:
    """Adapter of llama.cpp's `llama-server`."""

    kind = EngineKind.LLAMACPP
    managed = True
    # Its builds have numbers only: messages since 2025-12 (PR #17570), responses since 2026-01.
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType({})
    probes = Probes(alive="/health")
    death_words: tuple[bytes, ...] = ()  # one process: it breaks off
    metrics = MetricNames(
        path="/metrics",
        # These counters move when a request ends, not while it runs: what is live is in /slots.
        slots="/slots",
        generated=("llamacpp:tokens_predicted_total",),
        prefilled=("llamacpp:prompt_tokens_total",),
        timed_prompt=("llamacpp:prompt_tokens_total",),
        prompt_seconds=("llamacpp:prompt_seconds_total",),
        prefix_hits=("llamacpp:prompt_tokens_cached_total",),
        prefix_misses=("llamacpp:prompt_tokens_total",),
        kv_used=("llamacpp:kv_cache_usage_ratio",),
        running=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        # A rejected draft may be replayed for ever (llama.cpp #23268), so decodes count only without slots.
        moving_without_slots=("llamacpp:n_decode_total",),
        drafts=("llamacpp:spec_decode_num_drafts_total",),
        draft_tokens=("llamacpp:spec_decode_num_draft_tokens_total",),
        accepted=("llamacpp:spec_decode_num_accepted_tokens_total",),
        accepted_at=("llamacpp:spec_decode_num_accepted_tokens_per_pos_total",),
        started=(),
    )

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """Build the container that runs llama-server."""
        model = argv.target_model(profile)
        args, flags, env = _unmapped(profile, launch.flags)
        words = [
            *containers.program(profile, DEFAULT_PROGRAM),
            *("--model" if model.path else "--hf-repo", model.ref),
            *("--host", argv.HOST, "--port", str(launch.port), "--alias", profile.name),
            *argv.flag_words(argv.overlay_args((*DEFAULT_FLAGS, *flags), args), profile.models),
        ]
        return containers.build_container(profile, launch, words, env=env)

    def help(self, profile: Profile) -> HelpCommand | None:
        """Build the command that lists llama-server's flags; None for another program."""
        words = containers.program(profile, DEFAULT_PROGRAM)
        return (
            HelpCommand((*words, "--help"), quick=True) if containers.is_own_program(words, DEFAULT_PROGRAM) else None
        )

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        """List the names for the profile; llama-server is given one and accepts any."""
        return argv.served_names(profile)

    def context(self, profile: Profile) -> int | None:
        """Configured context in tokens; slots share it unless it is unified."""
        total = argv.parse_token_count(argv.lookup(profile.args, "ctx-size", "c"))
        slots = argv.parse_token_count(argv.lookup(profile.args, "parallel", "np")) or 1
        if not total:
            return profile.context
        return total if argv.lookup(profile.args, "kv-unified") else total // max(1, slots)

    def speculation(self, profile: Profile) -> str | None:
        """Describe the speculation settings of the profile; None without."""
        drafter = argv.lookup(profile.args, "spec-draft-model", "model-draft", "md")
        method = argv.lookup(profile.args, "spec-type") or ("draft" if drafter else None)
        depth = argv.lookup(profile.args, "spec-draft-n-max", "draft-max", "draft")
        if not method:
            return None
        return f"{method} k={depth}" if depth else str(method)

    def read_log(self, line: str) -> LoadProgress | None:
        """Read the progress in one line of the start-up log."""
        return logs.match_progress(line, PHRASES)

    def kv_dtype(self, lines: Sequence[str]) -> str | None:
        """Read the KV cache's type from the log; "q8_0/f16" where keys and values differ."""
        hit = logs.first_match(lines, KV)
        return hit and (hit[1] if hit[1] == hit[2] else f"{hit[1]}/{hit[2]}")

    def classify(self, lines: Sequence[str], exit_code: int | None) -> Failure:
        """Classify a failed start, this engine's own causes first."""
        return logs.classify(lines, exit_code, CAUSES)


class _Unmapped(NamedTuple):
    """Arguments and variables that make llama-server read its files instead of mapping them."""

    args: dict[str, ArgValue]
    """Profile's own arguments, without those that `flags` replace."""
    flags: tuple[tuple[str, ArgValue], ...] = ()
    env: Mapping[str, str] = containers.NO_VARIABLES


UNMAPPED_FLAGS: tuple[tuple[str, ArgValue], ...] = (("load-mode", "none"), ("no-mmap", True))
"""Flags against mapping, newest first."""


def _unmapped(profile: Profile, known: KnownFlags | None) -> _Unmapped:
    given = _with_hyphens(profile)
    as_given = _Unmapped(dict(profile.args))
    if "load-mode" in given or "mmap" in given or given.get("no-mmap") is False:
        return as_given
    if known is None:
        return as_given if "no-mmap" in given else as_given._replace(env=UNMAPPED_ENV)
    flag = next((flag for flag in UNMAPPED_FLAGS if known.has(flag[0])), None)
    return as_given if flag is None else _Unmapped(_without_no_mmap(profile), (flag,))


def _with_hyphens(profile: Profile) -> dict[str, ArgValue]:
    return {key.replace("_", "-"): value for key, value in profile.args.items() if value is not None}


def _without_no_mmap(profile: Profile) -> dict[str, ArgValue]:
    return {key: value for key, value in profile.args.items() if key.replace("_", "-") != "no-mmap"}
