"""Propose a profile and try it out: the annotated text, the weight facts, and the need."""

import re
from collections.abc import Iterator
from textwrap import wrap
from typing import NamedTuple

from sparkdash.catalog import importers, yaml12
from sparkdash.catalog.importers.values import profile_name
from sparkdash.cli import local
from sparkdash.cli.profiles.check import told_text
from sparkdash.cli.profiles.page import need_lines
from sparkdash.domain.memory import Need
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines.memory_terms import BOX_BYTES
from sparkdash.engines.proposal import MemoryBudget, OwnerChoices
from sparkdash.engines.registry import adapter, estimate_launch
from sparkdash.engines.rule import Severity
from sparkdash.errors import ProfileError
from sparkdash.rules import findings
from sparkdash.settings import Settings
from sparkdash.units import DASH, GIB, gib, tokens

HEAD_COLUMNS = 108


class CheckedProposal(NamedTuple):
    """Proposed profile that the catalog has accepted."""

    name: str
    text: str
    profile: Profile
    facts: WeightFacts
    need: Need
    warnings: tuple[str, ...]


def propose_checked(
    name: str, ref: dict[str, str], facts: WeightFacts, engine: EngineKind, wish: OwnerChoices, known: Settings
) -> CheckedProposal:
    """Propose a profile for this box. `name`: the profile's, or the model's, from which one is made."""
    box = MemoryBudget(local.box_bytes() or BOX_BYTES, int(known.reserve_gib * GIB))
    proposal = adapter(engine).propose(_name(name), ref, facts, box, wish)
    if "image" not in proposal.profile and known.runtime != "process":
        raise ProfileError(
            f"No {engine.value} image for a Spark (arm64, SM121) is known.",
            code="image_missing",
            hint="Name one with --image; build it on the Spark if you have none.",
        )
    profile, _ = _tried(proposal.profile["profile"], yaml12.annotated_yaml(proposal.profile, proposal.reasons, ()))
    need = estimate_launch(profile, {"target": facts}, box.total)
    text = yaml12.annotated_yaml(proposal.profile, proposal.reasons, _head(facts, need))
    profile, warnings = _tried(profile.name, text)
    return CheckedProposal(profile.name, text, profile, facts, need, (*warnings, *_short(need, box)))


def _name(text: str) -> str:
    base = re.sub(r"-\d{5}-of-\d{5}$", "", text.rstrip("/").rpartition("/")[2].removesuffix(".gguf")).lower()
    if found := profile_name(base):
        return found
    raise ProfileError(f"No profile name can be made from {text!r}.", code="name_missing", hint="Give one with --name.")


def _tried(name: str, text: str) -> tuple[Profile, tuple[str, ...]]:
    found = importers.load_imported({name: text})
    told = findings(found)
    wrong = (*map(str, found.problems), *(told_text(one) for one in told if one.level is Severity.ERROR))
    if wrong:
        raise ProfileError(f"No valid profile can be made for {name}.", problems=wrong)
    return found.profiles[name], tuple(told_text(one) for one in told if one.level is Severity.WARNING)


def _short(need: Need, box: MemoryBudget) -> Iterator[str]:
    total = need.total_bytes
    if total is not None and total > box.total - box.reserve:
        yield (
            f"it needs {gib(total)}, and this box has {gib(box.total)} with {gib(box.reserve)} kept free: "
            "sparkdash will refuse to start it. Use a smaller checkpoint or --context."
        )


def _head(facts: WeightFacts, need: Need) -> Iterator[str]:
    origin = " ".join(facts.origin.split())
    yield f"Proposed by `sparkdash profiles new` from the headers of {origin}. Nothing was measured."
    yield ""
    yield from wrap(_described(facts), HEAD_COLUMNS)
    yield ""
    yield from (line.removeprefix("  ") for line in need_lines(need, HEAD_COLUMNS))


def _described(facts: WeightFacts) -> str:
    size = f"{facts.parameters / 1e9:.1f} billion parameters" if facts.parameters else "Parameters unknown"
    kinds = ", ".join(f"{layers.layers} {layers.kind.value}" for layers in facts.kv) or "their KV size is unknown"
    each, active = facts.kv_bytes_per_token(), facts.active_bytes()
    words = [
        f"{size} in {gib(facts.bytes.total)} ({facts.quantization or facts.dtype or 'unquantized'}), "
        f"{facts.layers or DASH} layers ({kinds}), context {tokens(facts.context)}."
    ]
    if each:
        words.append(f"A token keeps {each / 1024:.0f} KiB in a 16-bit KV cache.")
    if active:
        words.append(f"Decoding one reads {active / 1e9:.1f} GB of weights.")
    if facts.mtp:
        words.append(f"It has an MTP head of {gib(facts.bytes.draft)}.")
    return " ".join(words)
