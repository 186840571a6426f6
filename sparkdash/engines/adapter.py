"""EngineAdapter: everything that the rest of the house asks about an engine, as a stateless value.

It never talks to an engine itself. What stands here holds for an engine of which nothing more is known. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from sparkdash.domain.container import ContainerSpec
from sparkdash.domain.engine import Failure, LoadProgress
from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.profile import ApiProtocol, EngineKind, FixName, Profile
from sparkdash.domain.request import Task
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines import argv, logs, memory_terms
from sparkdash.engines.argv import NO_LISTS, ListArgs, version_of
from sparkdash.engines.containers import LaunchContext, started_elsewhere
from sparkdash.engines.flag_table import FlagSource
from sparkdash.engines.probes import MetricNames, Probes
from sparkdash.engines.proposal import KnownImage, KvCachePlan, MemoryBudget, OwnerChoices, Proposal, plan_cache
from sparkdash.engines.rule import Rule
from sparkdash.engines.start_stages import Lever

POOLING = frozenset({Task.EMBED, Task.RERANK})
_ENCODERS = ("bert", "roberta", "mpnet", "gte", "t5encoder")
"""Parts of the `model_type` of models that only encode text."""
NO_FIXES: frozenset[FixName] = frozenset()
_BARE = re.compile(
    r"(enable|disable|no)-.*|trust-remote-code|enforce-eager|async-scheduling|jinja|metrics|mlock|cont-batching"
    r"|embedding|verbose"
)
"""Flags without a value, by their names."""


class Counting(NamedTuple):
    """Request that returns the number of tokens of a prompt."""

    path: str
    body: dict[str, Any]


class CommandLine(NamedTuple):
    """Command line of an engine's server, as an import of somebody's recipe reads it. Flags are without hyphens."""

    model: tuple[str, ...]
    is_model_positional: bool = True
    """Whether the model may be a word of its own."""
    names: str = ""
    drafter: str = ""
    short: Mapping[str, str] = MappingProxyType({})
    """Long names of synonyms, and of short flags that the flag table has by another name."""
    resolves_long: bool = False
    """Whether `short` also has synonyms that are written with two hyphens."""
    attached: Mapping[str, str] = MappingProxyType({})
    """Short flags whose digit is attached to them, with their long names, hyphens included: `-O3`."""
    old_speculation: Mapping[str, str] = MappingProxyType({})
    ours: frozenset[tuple[str, ...]] = frozenset()
    """Flags, with their values, that sparkdash adds by itself, and that an import therefore drops."""


class EngineAdapter:
    """Knowledge of an engine kind; its folder registers one instance as ENGINE."""

    kind: EngineKind
    title: str
    managed: bool = True
    probes: Probes
    metrics: MetricNames
    metric_prefix: str | None = None
    program: tuple[str, ...] = ()
    phrases: Sequence[logs.Phrase] = ()
    follows: Mapping[str, str] = MappingProxyType({})
    """Stage of a start that follows another one's end without a line of its own."""
    compiled_line: re.Pattern[str] | None = None
    """Line of its log that tells of compiled graphs; the group `cached` is there if they came from a cache."""
    causes: Sequence[logs.Cause] = ()
    """Causes of failed starts, tried before those that all engines share."""
    weights_line: re.Pattern[str] | None = None
    """Line of its log that tells the GiB of its weights."""
    death_words: tuple[bytes, ...] = ()
    """Words in an error that mean a dead engine behind the HTTP server; empty where the connection merely breaks."""
    speaks_since: Mapping[ApiProtocol, tuple[int, ...] | None] = MappingProxyType({})
    """First version with each protocol; None: no known one has it. An absent protocol is unknown, or as old as it."""
    cached_loaders: frozenset[str] = frozenset()
    """Values of `load-format` or `load-mode` whose loader reads through the page cache; "" where none is given."""
    takes_adapters: bool = False
    """Whether sparkdash gives the engine LoRA adapters to answer with by name."""
    parallel_flags: Mapping[str, str] = MappingProxyType({})
    """Flags of a profile's `parallel`, such as tp: tensor-parallel-size."""
    runs_on_nodes: bool = False
    flag_source: FlagSource | None = None
    command_line: CommandLine | None = None
    known_image: KnownImage | None = None
    """Image for a Spark that a first profile names."""
    owned_by: str | None = None
    """`owned_by` of the server's cards in /v1/models."""
    takes_vllm_keys: bool = False
    """Whether the server takes vLLM's request keys: forced length, unshared prompt, counts in each chunk."""
    usage_on_request: bool = False
    """Whether the engine counts a stream's tokens if `stream_options.include_usage` is sent, and only then."""
    ranks_texts: bool = False
    keeps_responses: bool = False
    """Whether the engine finds an earlier response by `previous_response_id`."""
    memory_variables: Mapping[str, int | None] = MappingProxyType({})
    """Variables by which the engine takes memory beyond its flags: bytes of one unit of their value; None: unknown."""
    memory_flags: Mapping[str, int] = MappingProxyType({})
    """Flags by which the engine takes memory beyond its weights, cache and share: bytes of one unit of their value."""
    share_flags: tuple[str, ...] = ()
    """Flags whose value is a share of the memory."""
    tool_flag: str | None = None
    """Flag without which the engine reads no tool calls."""

    def __repr__(self) -> str:
        return f"<engine {self.kind}>"

    def of(self, profile: Profile) -> "EngineAdapter":
        return self

    @property
    def lists(self) -> ListArgs:
        return self.flag_source.lists if self.flag_source else NO_LISTS

    # -- its launch

    def launched(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """Build what a start runs: the starter of a profile that has one, else the container. Raises ProfileError."""
        return started_elsewhere(profile, launch) if profile.starter else self.container(profile, launch)

    def container(self, profile: Profile, launch: LaunchContext) -> ContainerSpec:
        """Build the container. Raises ProfileError: the profile lacks what is needed, or is not started from here."""
        raise NotImplementedError

    def served_names(self, profile: Profile) -> tuple[str, ...]:
        """List the model names that the engine accepts; the warm-up uses the first."""
        return argv.served_names(profile)

    def adapter_request(self, profile: Profile, name: str) -> Mapping[str, Any]:
        """Return the keys of a request by which the engine takes this adapter, beside its name."""
        return {}

    def context(self, profile: Profile) -> int | None:
        return profile.context

    def speculation(self, profile: Profile) -> str | None:
        """Describe the speculation, such as "eagle3 k=1"; None without."""
        return None

    def rules(self) -> tuple[Rule, ...]:
        return ()

    def levers(self) -> tuple[Lever, ...]:
        """Return what shortens a stage of its start; of several for one stage the first that applies counts."""
        return ()

    # -- its log

    def read_log(self, line: str) -> LoadProgress | None:
        """Read the progress that one line of the start-up log (without its end) reports, or None."""
        return logs.match_progress(line, self.phrases)

    def age(self, line: str) -> float | None:
        """Read the seconds since the engine's start that a line of its log bears, or None."""
        return None

    def kv_dtype(self, lines: Sequence[str]) -> str | None:
        """Read the KV cache's element type, as the engine resolved it; None when the log does not tell it."""
        return None

    def loaded_gib(self, lines: Sequence[str]) -> float | None:
        """Read the GiB of weights on a node from the start-up log, the largest rank's; None when it is not there."""
        hits = (self.weights_line.search(line) for line in lines) if self.weights_line else ()
        return max((float(hit[1]) for hit in hits if hit), default=None)

    def classify(self, lines: Sequence[str], exit_code: int | None) -> Failure:
        return logs.classify(lines, exit_code, self.causes)

    # -- its memory

    def fixed_need(self, profile: Profile) -> Need | None:
        """Return the need that no estimate precedes; None for an engine that has to be estimated."""
        if self.managed:
            return None
        source = f"runs at {profile.url} by its own means; sparkdash starts nothing"
        return Need(basis=Basis.DECLARED, terms=(Term(name="steady", bytes=0, source=source),))

    def memory_terms(self, profile: Profile, facts: memory_terms.Facts, box_bytes: int | None) -> Iterator[Term]:
        """Yield weights, drafter and kv, or utilization alone, as the engine allocates them."""
        if memory_terms.TARGET in profile.models:
            yield memory_terms.weights_term(profile, facts, mtp=False)
        yield Term(name="kv", source="what the server takes beside its weights is not known; declare memory.kv_gib")

    def loader_terms(self, profile: Profile) -> Iterator[Term]:
        """Yield what the loader of the weights keeps beside them."""
        yield from ()

    def overhead(self, profile: Profile, *, is_shared: bool) -> Term:
        """Return the term beyond weights and cache. `is_shared`: the engine takes a share of the box for those."""
        return memory_terms.overhead_term(profile)

    def memory_beside(self, profile: Profile) -> Iterator[tuple[str, int | None]]:
        """Yield the variables and flags by which the launch takes memory beside those terms, with the bytes."""
        yield from memory_terms.held_by_variables(profile, self.memory_variables)
        yield from memory_terms.held_by_flags(profile.args, self.memory_flags)

    def sizes_by_free_memory(self, profile: Profile) -> bool:
        return False

    def fills_page_cache(self, profile: Profile) -> bool:
        """Whether the launch fills the page cache with its weights before it reads them."""
        return False

    writes_kv = False
    """Whether the engine writes conversations to the disk as it computes them, and finds them there by itself."""

    def keeps_kv(self, profile: Profile) -> bool:
        """Whether sparkdash has the engine save its conversations if the profile says `keep_kv`."""
        return False

    def reads_page_cache(self, profile: Profile) -> bool:
        """Whether weights that are in the page cache are not read from the disk again."""
        loader = str(argv.lookup(profile.args, "load-format", "load-mode") or "")
        return loader in self.cached_loaders and not argv.lookup(profile.args, "direct-io")

    # -- a first profile for a model

    def propose(
        self, name: str, model: dict[str, str], facts: WeightFacts, box: MemoryBudget, choices: OwnerChoices
    ) -> Proposal:
        proposal = Proposal.begin(name, self.kind.value, facts)
        proposal.take_image(self.known_image, choices)
        proposal.profile["models"] = {"target": model}
        self.propose_flags(proposal, facts, plan_cache(facts, box, choices), box)
        return proposal

    def propose_flags(
        self, proposal: Proposal, facts: WeightFacts, cache: KvCachePlan | None, box: MemoryBudget
    ) -> None: ...

    # -- what it can do

    def tasks(self, profile: Profile, target: WeightFacts | None) -> frozenset[Task] | None:
        """Return the tasks that the engine can do; None while unknown. `target`: its model's weights, once read."""
        kind = (target.architecture if target else None) or ""
        return POOLING if any(part in kind.lower() for part in _ENCODERS) else None

    def reads_images(self, profile: Profile, target: WeightFacts | None) -> bool | None:
        """Whether the launch reads images; None while unknown."""
        return None

    def takes_tools(self, profile: Profile) -> bool:
        return self.tool_flag is None or bool(argv.lookup(profile.args, self.tool_flag))

    def lacks_protocol(self, profile: Profile, version: str | None, protocol: ApiProtocol) -> bool | None:
        """Whether the engine, of its reported `version` or the profile's, lacks the protocol; None: it alone knows."""
        if profile.protocols is not None:
            return protocol not in profile.protocols
        if protocol not in self.speaks_since:
            return None
        first, found = self.speaks_since[protocol], version_of(version or profile.engine_version)
        if first is None:
            return True
        return None if found is None else found < first

    def needs_fixes(self, version: tuple[int, ...] | None, *, harmony: bool) -> frozenset[FixName]:
        """Name the corrections (docs/requests.md) that it needs beside those of all; no version is the newest.

        `harmony`: it serves a gpt-oss model.
        """
        return NO_FIXES

    def takes_tool_type(self, kind: object, *, harmony: bool) -> bool:
        """Whether the engine takes a tool of this type in a request of the Responses API."""
        return kind == "function"

    # -- how it is measured

    def forced_length(self, tokens: int) -> dict[str, Any]:
        """Keys for an answer of exactly `tokens`, where the engine supports it; elsewhere at most that many."""
        return {"max_tokens": tokens} | ({"min_tokens": tokens, "ignore_eos": True} if self.takes_vllm_keys else {})

    def uncached_prompt(self, salt: str) -> dict[str, Any]:
        return {"cache_salt": salt} if self.takes_vllm_keys else {}

    def usage_counts(self) -> dict[str, Any]:
        """Keys for token counts in `usage`, and in every chunk where the engine supports it."""
        in_chunks = {"continuous_usage_stats": True} if self.takes_vllm_keys else {}
        return {"stream_options": {"include_usage": True} | in_chunks}

    def count_request(self, model: str, content: str) -> Counting | None:
        """Build the request that counts the tokens of a user's message; None when the engine has no route for it."""
        return None

    def tokenize_request(self, model: str, text: str) -> Counting | None:
        return None

    # -- what others' recipes say of it

    def is_bare_flag(self, key: str) -> bool:
        """Whether a flag is known to take no value: by the engine's flag table, else by its name."""
        facts = self.flag_source.table.find(key) if self.flag_source else None
        if facts is not None and facts.present:
            return facts.takes(max(facts.present)) in ("none", "toggle")
        return _BARE.fullmatch(key) is not None

    def long_name(self, short: str) -> str | None:
        """Return the long name of a short flag, both without hyphens; None for an unknown one."""
        if self.command_line and short in self.command_line.short:
            return self.command_line.short[short]
        facts = self.flag_source.table.by_word.get(f"-{short}") if self.flag_source else None
        if facts is None:
            return None
        negation = next((word[2:] for word in facts.spellings if word.startswith("--no-")), None)
        return negation if negation and short.startswith("n") else facts.name

    def flag_of_variable(self, name: str) -> str | None:
        """Return the flag, without hyphens, that a variable of the engine's environment stands for; None for others."""
        return None

    def recognise(self, words: Sequence[str], name: str, image: str) -> tuple[Sequence[str], Sequence[str]] | None:
        """Recognise the engine's command line; return the profile's `command`, and the words after the program.

        `name`: the first word without folder and version. `image`: where the words follow an image's own entrypoint.
        """
        return None
