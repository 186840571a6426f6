"""TensorFold's `tensorfold serve` on CUDA, v0.6: ashhart/TensorFold, read and not run. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.memory import Term
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines import argv, containers, logs, nodes
from sparkdash.engines.adapter import CommandLine, Counting, EngineAdapter
from sparkdash.engines.argv import lookup, parse_token_count
from sparkdash.engines.containers import LaunchContext
from sparkdash.engines.logs import Phrase
from sparkdash.engines.memory_terms import Drafting, Facts, loaded_terms
from sparkdash.engines.probes import MetricNames, Probes
from sparkdash.units import GIB

PORT = 29551
"""Default of --master-port; used where no free port was chosen."""

LIMIT = "TENSORFOLD_CUDA_MEMORY_LIMIT_GB"
"""Variable that caps weights, caches and buffers together, in GiB (cuda/capacity.py)."""

POOL = "TENSORFOLD_KV_POOL_GIB"
"""Variable of MiaAI-Lab's builds: the cache is allocated at the start, pinned, and never given back."""

BARE = frozenset({
    "vision", "vision-urls", "thinking", "no-thinking", "no-drafts", "prefill-fp8", "no-prefill-fp8", "ple-on-ssd",
    "no-update-check",
})  # fmt: skip
"""Flags without a value (cli_args.py)."""

PHRASES = (
    Phrase("weights", r"^\[tensorfold\] loading \S", 0.0),
    Phrase("compile", r"building CUDA extension"),
    Phrase("weights", r"^\[tensorfold\] CUDA rank \d startup estimate [\d.]+ GiB within"),
    Phrase("warmup", r"prompt kernels warmed in|^\[tensorfold\] rank \d ready in"),
    Phrase("ready", r"^\[tensorfold\] serving .*loaded in [\d.]+s", 1.0),
)


class TensorFold(EngineAdapter):
    """Adapter of `tensorfold serve`. Read, not run."""

    kind = EngineKind.TENSORFOLD
    title = "TensorFold"
    program = ("tensorfold", "serve")
    probes = Probes(alive="/health")
    # No death words: a failed generation is a 500 of that request alone; two ranks out of step end by a restart.
    metrics = MetricNames(
        path="/metrics",
        generated=("tensorfold:generation_tokens_total",),
        prompted=("tensorfold:prompt_tokens_total",),
        prefix_hits=("tensorfold:prompt_tokens_cached_total",),
        prefix_queries=("tensorfold:prompt_tokens_total",),
        kv_used=("tensorfold:kv_cache_usage_ratio",),  # of running requests' windows, where no pool is shared
        running=("tensorfold:requests_running",),
        waiting=("tensorfold:requests_waiting",),
        moving=("tensorfold:generation_tokens_running", "tensorfold:decode_rounds_total"),
        is_live=False,  # its counters move when a request ends
        drafts=("tensorfold:decode_rounds_total",),
        draft_tokens=("tensorfold:mtp_drafted_total",),
        accepted=("tensorfold:mtp_accepted_total",),
        ttft=("tensorfold:time_to_first_token_seconds",),
        preemptions=("tensorfold:preemptions_total",),
        started=(),
        health="/health",
    )
    metric_prefix = "tensorfold:"
    phrases = PHRASES
    causes = (
        logs.cause(
            "out_of_memory",
            r"CUDA startup memory budget cannot fit",
            "It found too little memory for its settings",
            "Lower `context` or `parallel` in the profile to what the line names, or stop what else holds memory.",
        ),
    )
    parallel_flags = MappingProxyType({"tp": "tp"})
    runs_on_nodes = True
    command_line = CommandLine(model=("model",), names="name", drafter="drafter")
    owned_by = "tensorfold"

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """Build the container, or one with a rank for each node: rank 0 serves, and the others follow it."""
        words = [
            *containers.program(profile, self.program),
            *(argv.target_model(profile).ref, "--name", profile.name, "--host", argv.HOST, "--port", str(launch.port)),
            *argv.flag_words(profile.args, profile.models),
        ]
        env = {"TENSORFOLD_NO_UPDATE_CHECK": "1"}  # it asks GitHub for a newer release at each start
        if profile.nodes == 1:
            return containers.build_container(profile, launch, words, shm_size=containers.SHM_SIZE, env=env)
        nodes.refuse_unfit(profile, launch)
        head = ["--master", launch.nodes[0].address, "--master-port", str(launch.master_port or PORT)]
        ranks = [[*words, *head, "--rank", str(rank)] for rank in range(len(launch.nodes))]
        return nodes.build_containers(profile, launch, ranks, [env] * len(ranks))

    def context(self, profile: Profile) -> int | None:
        return parse_token_count(lookup(profile.args, "context")) or profile.context

    def speculation(self, profile: Profile) -> str | None:
        if lookup(profile.args, "no-drafts"):
            return None
        drafter = _drafting(profile).model
        if drafter is not None:
            return "dflash2" if "dflash2" in argv.fill_placeholders(drafter, profile.models).lower() else "draft model"
        steps = lookup(profile.args, "mtp-drafts")
        return f"mtp k={steps}" if steps else None

    def memory_terms(self, profile: Profile, facts: Facts, box_bytes: int | None) -> Iterator[Term]:
        """Weights and the pinned pool; the profile's own limit in place of both."""
        if (limit := _gib(profile.env, LIMIT)) is not None:
            yield Term(name="utilization", bytes=limit, source=f"{LIMIT} caps weights, caches and buffers")
            return
        yield from loaded_terms(profile, facts, _drafting(profile))
        if (pool := _gib(profile.env, POOL)) is not None:
            yield Term(name="kv", bytes=pool, source=f"{POOL}: pinned at the start")
        else:
            why = "its caches grow by request, up to what is free at the start; declare memory.kv_gib"
            yield Term(name="kv", source=f"{why}, or set {LIMIT}")

    def sizes_by_free_memory(self, profile: Profile) -> bool:
        return True

    def reads_images(self, profile: Profile, target: WeightFacts | None) -> bool | None:
        return bool(lookup(profile.args, "vision"))

    def forced_length(self, tokens: int) -> dict[str, Any]:
        return {"max_tokens": tokens, "ignore_eos": True}

    def count_request(self, model: str, content: str) -> Counting | None:
        body = {"model": model, "messages": [{"role": "user", "content": content}]}
        return Counting("/tokenize", body)

    def tokenize_request(self, model: str, text: str) -> Counting | None:
        return Counting("/tokenize", {"model": model, "prompt": text, "add_special_tokens": False})

    def is_bare_flag(self, key: str) -> bool:
        return key in BARE

    def recognise(self, words: Sequence[str], name: str, image: str) -> tuple[Sequence[str], Sequence[str]] | None:
        return (words[:2], words[2:]) if name == "tensorfold" and words[1:2] == ["serve"] else None


def _drafting(profile: Profile) -> Drafting:
    """Drafting: the model that --drafter names, else the target's own MTP layers."""
    drafter = lookup(profile.args, "drafter")
    if lookup(profile.args, "no-drafts"):
        return Drafting()
    return Drafting("mtp") if drafter in (None, "auto", "none") else Drafting("draft", str(drafter))


def _gib(env: Mapping[str, str], name: str) -> int | None:
    try:
        return int(float(env.get(name, "")) * GIB)
    except ValueError:
        return None


ENGINE = TensorFold()
