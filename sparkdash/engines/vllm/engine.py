"""Dialect of vLLM, 0.16 to 0.33.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sparkdash.domain import list_args
from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.profile import ApiProtocol, EngineKind, Profile
from sparkdash.engines import argv, containers, logs
from sparkdash.engines.adapter import HelpCommand, LaunchContext
from sparkdash.engines.vllm import flags, nodes, surface

DEFAULT_PROGRAM = ("vllm", "serve")

# Without it the usage of an answer does not tell how many prompt tokens came from the prefix cache.
DEFAULT_FLAGS = (("enable-prompt-tokens-details", True),)
# What is asked of it every second would fill its log with nothing else.
QUIET_FLAGS = (("disable-access-log-for-endpoints", "/health,/metrics"),)

QUANTIZED_KV = re.compile(r"Using (\S+) data type to store kv cache")
# vLLM resolves `auto` from the checkpoint before it writes this line (engine/arg_utils.py, seen in 0.32);
# what is left of it is the model's dtype.
CONFIG = re.compile(r"Initializing a V\d LLM engine.*?\bdtype=torch\.(?P<model>\w+).*?\bkv_cache_dtype=(?P<kv>\w+)")

PHRASES = (*nodes.PHRASES, *surface.PHRASES)

CAUSES = (
    logs.cause(
        "out_of_memory",
        r"Free memory on device .* is less than desired|No available memory for the cache blocks"
        r"|larger than the available KV cache memory",
        "It found too little memory for its settings",
        "Lower `gpu-memory-utilization` or `max-model-len` in the profile, or stop what else holds memory.",
    ),
)


class Vllm:
    """Adapter of `vllm serve`."""

    kind = EngineKind.VLLM
    managed = True
    # vLLM PRs #20504 and #22627; 0.11.0 was seen to lack messages.
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType(
        {ApiProtocol.RESPONSES: (0, 10), ApiProtocol.MESSAGES: (0, 11, 1)}
    )
    probes = surface.PROBES
    death_words = surface.DEATH_WORDS
    metrics = surface.METRICS

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """Build the container of `vllm serve`. Raises ProfileError for flags that this vLLM is known to refuse."""
        flags.refuse_known_bad(profile)
        model = argv.target_model(profile, pinnable=True)
        defaults = DEFAULT_FLAGS + (QUIET_FLAGS if flags.is_quiet(profile, launch.flags) else ())
        words = [
            *containers.program(profile, DEFAULT_PROGRAM),
            model.ref,
            *("--host", argv.HOST, "--port", str(launch.port)),
            *("--served-model-name", *self.served_names(profile)),
            *(("--revision", model.revision) if model.revision else ()),
            *argv.flag_words(
                argv.overlay_args(defaults, profile.args), profile.models, list_args.list_args_of(self.kind)
            ),
        ]
        if profile.nodes > 1:
            return nodes.build_containers(profile, launch, words)
        return containers.build_container(profile, launch, words, shm_size=containers.SHM_SIZE)

    def help(self, profile: Profile) -> HelpCommand | None:
        """Build the command that lists vLLM's flags; None for another program."""
        words = containers.program(profile, DEFAULT_PROGRAM)
        return (
            HelpCommand((*words, "--help=all"), quick=False)
            if containers.is_own_program(words, DEFAULT_PROGRAM)
            else None
        )

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        """List the served names; vLLM answers 404 to any other."""
        return argv.served_names(profile)

    def context(self, profile: Profile) -> int | None:
        """Configured context in tokens, from the profile."""
        return surface.context(profile.args) or profile.context

    def speculation(self, profile: Profile) -> str | None:
        """Describe the speculation settings of the profile; None without."""
        return surface.speculation(profile.args)

    def read_log(self, line: str) -> LoadProgress | None:
        """Read the progress in one line of the start-up log."""
        return logs.match_progress(line, PHRASES)

    def kv_dtype(self, lines: Sequence[str]) -> str | None:
        """Read the KV cache's type from the start-up log."""
        if hit := logs.first_match(lines, QUANTIZED_KV):
            return hit[1]
        hit = logs.first_match(lines, CONFIG)
        return hit and (hit["model"] if hit["kv"] == "auto" else hit["kv"])

    def classify(self, lines: Sequence[str], exit_code: int | None) -> Failure:
        """Classify a failed start, this engine's own causes first."""
        return logs.classify(lines, exit_code, CAUSES)
