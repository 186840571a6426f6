"""Models that a server lists at /v1/models: who serves them, and the one that is meant. Pure."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.registry import owner_of

SIMULATED = "SIMULATED"
"""Prefix of a simulated model's description in sparkdash's own gateway."""
GATEWAY = "sparkdash"
"""`owned_by` in /v1/models of sparkdash's own gateway."""


class Listing(NamedTuple):
    """Models of a server, in its order."""

    names: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    """Names of distinct models: no adapters of another model, no further names of the same weights."""


NOTHING = Listing()


def parse_model_list(body: bytes) -> Listing:
    """Parse the models in an answer of /v1/models; empty when it is no list. Never raises."""
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError):
        return NOTHING
    named = [card for card in _cards(answer) if isinstance(card.get("id"), str)] if isinstance(answer, dict) else []
    bases: dict[object, str] = {}
    for card in named:
        if not card.get("parent"):  # vLLM's LoRA adapters name the model that they belong to
            bases.setdefault(_weights(card), card["id"])
    return Listing(tuple(card["id"] for card in named), tuple(bases.values()))


def model_of(profile: Profile, listing: Listing) -> str | None:
    """Choose the model's name: `model_id`, a listed name that the profile knows, the only listed one; else None.

    For a server that lists nothing it is the profile's own name of the model.
    """
    if profile.model_id is not None:
        return profile.model_id
    target = profile.models.get("target")
    known: tuple[str, ...] = (*((target.ref,) if target else ()), profile.name, *profile.serves)
    if not listing.names:
        return known[0]
    if meant := next((name for name in known if name in listing.names), None):
        return meant
    return listing.models[0] if len(listing.models) == 1 else None


def _weights(card: Mapping[str, Any]) -> object:
    """Weights of a listed model: `root` of vLLM and SGLang, which list each further name of one model."""
    root = card.get("root")
    return root if isinstance(root, str) and root else (card["id"],)


def engine_kind_of(models: Mapping[str, Any]) -> EngineKind:
    owners = (owner_of(card.get("owned_by")) for card in _cards(models))
    return next((owner.kind for owner in owners if owner), EngineKind.OPENAI)


def token_count(answer: Mapping[str, Any]) -> int | None:
    count = answer.get("count")
    if isinstance(count, int):
        return count
    tokens = answer.get("tokens")
    return len(tokens) if isinstance(tokens, list) else None


def _cards(models: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    cards = models.get("data")
    return [card for card in cards if isinstance(card, Mapping)] if isinstance(cards, list) else []
