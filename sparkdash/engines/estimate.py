"""Estimated need of a launch without measurements: a sum of terms, each with its source.

Owns: how an engine's terms and declared figures become a Need. Rule: unknown figures stay unknown; the term's source
says what is missing.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkdash.domain.memory import Basis, Need, Term
from sparkdash.domain.profile import Profile
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.engines.memory_terms import Facts
from sparkdash.engines.registry import adapter_of
from sparkdash.units import GIB

_ORDER = ("weights", "drafter", "kv", "utilization", "loader", "overhead")


def estimate_launch(profile: Profile, facts: Facts, box_bytes: int | None) -> Need:
    """Estimate the need of one launch on one box, term by term.

    `box_bytes` is MemTotal; None is unknown. A declared figure (`memory:`) precedes the computed one. Terms: weights +
    drafter + kv + overhead. Where the engine takes a fixed share of the box: utilization + overhead. No peak: the peak
    of a load has to be measured.
    """
    adapter, declared = adapter_of(profile), _declared(profile)
    if (fixed := adapter.fixed_need(profile)) is not None:
        return fixed
    computed = {term.name: term for term in adapter.memory_terms(profile, facts, box_bytes)}
    terms = _merged(profile, adapter, computed, declared)
    return Need(basis=_basis(terms, declared), terms=terms)


def _merged(
    profile: Profile, adapter: EngineAdapter, computed: dict[str, Term], declared: dict[str, Term]
) -> tuple[Term, ...]:
    body = dict(computed)
    if declared.keys() >= {"weights", "kv"}:  # what it really takes, not the share that it may take
        body.pop("utilization", None)
    # A part of a share is no summand beside it.
    parts = ("weights", "kv") if "utilization" in body else ()
    body |= {name: term for name, term in declared.items() if name not in parts}
    if "utilization" not in body:
        body |= {term.name: term for term in adapter.loader_terms(profile)}
    body.setdefault("overhead", adapter.overhead(profile, is_shared="utilization" in body))
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


def _basis(terms: tuple[Term, ...], declared: Mapping[str, Term]) -> Basis:
    if not terms or any(term.bytes is None for term in terms):
        return Basis.UNKNOWN
    return Basis.DECLARED if all(declared.get(term.name) == term for term in terms) else Basis.ESTIMATED
