"""Estimated need of a launch without measurements: a sum of terms, each with its source.

Owns: how flags, weights and declared figures become a Need. Must not know: files, free memory, earlier loads. Rule:
unknown figures stay unknown; the term's source says what is missing.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkdash.domain.memory.need import Basis, Need, Term
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.sim_spec import SimSpec
from sparkdash.domain.weights import Unread, WeightFacts
from sparkdash.engines.estimate import allocation
from sparkdash.engines.launch.argv import lookup
from sparkdash.units import GIB

OVERHEAD_BYTES = 7 * GIB
"""Memory beyond weights and KV cache: 5.4 to 6.7 GiB of vLLM 0.28 on a GB10 (llamastash#80, #81), rounded up."""
HOST_BYTES = int(5.6 * GIB)
"""Memory beyond the share that vLLM counts: its host side and CUDA graphs on a GB10
(GLM-5.3-Flash-EXL3-2x-DGX-Sparks#118).
"""
LOADER_BYTES = int(4.4 * GIB)
"""Memory that the instanttensor loader keeps: 15.0 against 10.6 GiB of KV cache
(GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204).
"""

_ORDER = ("weights", "drafter", "kv", "utilization", "loader", "overhead")


def estimate_launch(profile: Profile, facts: Mapping[str, WeightFacts | Unread], box_bytes: int | None) -> Need:
    """Estimate the need of one launch on one box, term by term.

    `facts` are those of the profile's models by role (`target`, `drafter`, …); an absent role counts as unread.
    `box_bytes` is MemTotal; None is unknown. A declared figure (`memory:`) precedes the computed one. Terms: weights +
    drafter + kv + overhead. Where the engine takes a fixed share of the box: utilization + overhead. No peak: the peak
    of a load has to be measured.
    """
    declared = _declared(profile)
    if profile.engine in (EngineKind.OPENAI, EngineKind.REMOTE):
        source = f"runs at {profile.url} by its own means; sparkdash starts nothing"
        return Need(basis=Basis.DECLARED, terms=(Term(name="steady", bytes=0, source=source),))
    if profile.engine is EngineKind.SIM and profile.memory.total_bytes is None:
        size = int((profile.sim or SimSpec()).memory_gib * GIB)
        return Need(basis=Basis.DECLARED, terms=(Term(name="steady", bytes=size, source="sim.memory_gib: simulated"),))
    computed = {term.name: term for term in allocation.allocation_terms(profile, facts, box_bytes)}
    terms = _merged(profile, computed, declared)
    return Need(basis=_basis(terms, declared), terms=terms)


def _merged(profile: Profile, computed: dict[str, Term], declared: dict[str, Term]) -> tuple[Term, ...]:
    body = dict(computed)
    if declared.keys() >= {"weights", "kv"}:  # what it really takes, not the share that it may take
        body.pop("utilization", None)
    # A part of a share is no summand beside it.
    parts = ("weights", "kv") if "utilization" in body else ()
    body |= {name: term for name, term in declared.items() if name not in parts}
    if profile.engine is EngineKind.VLLM and "utilization" not in body:
        body |= {term.name: term for term in _loader(profile)}
    body.setdefault("overhead", _overhead(profile, shared="utilization" in body))
    return tuple(body[name] for name in _ORDER if name in body)


def _declared(profile: Profile) -> dict[str, Term]:
    """Return the profile's own figures by term."""
    memory = profile.memory
    sizes = {"weights": memory.weights_gib, "kv": memory.kv_gib, "overhead": memory.overhead_gib}
    why = f"in the profile: {memory.source or 'no source given'}"
    return {
        name: Term(name=name, bytes=int(size * GIB), source=f"memory.{name}_gib {why}")
        for name, size in sizes.items()
        if size is not None
    }


def _loader(profile: Profile) -> list[Term]:
    if lookup(profile.args, "load-format") != "instanttensor":
        return []
    source = "load-format instanttensor: 4.4 GiB on a GB10 (GLM-5.3-Flash-EXL3-2x-DGX-Sparks#204)"
    return [Term(name="loader", bytes=LOADER_BYTES, source=source)]


def _overhead(profile: Profile, *, shared: bool) -> Term:
    if not profile.gpu:
        return Term(name="overhead", source="not measured for engines on the CPU; declare memory.overhead_gib")
    if shared and profile.engine is EngineKind.VLLM:
        source = "host side and CUDA graphs, not in the share: GLM-5.3-Flash-EXL3-2x-DGX-Sparks#118"
        return Term(name="overhead", bytes=HOST_BYTES, source=source)
    source = "5.4 to 6.7 GiB on a GB10, rounded up: llamastash#80, #81"
    if profile.engine is not EngineKind.VLLM:
        source += f"; that was vLLM, {profile.engine.value} is taken for no more"
    return Term(name="overhead", bytes=OVERHEAD_BYTES, source=source)


def _basis(terms: tuple[Term, ...], declared: Mapping[str, Term]) -> Basis:
    if not terms or any(term.bytes is None for term in terms):
        return Basis.UNKNOWN
    return Basis.DECLARED if all(declared.get(term.name) == term for term in terms) else Basis.ESTIMATED
