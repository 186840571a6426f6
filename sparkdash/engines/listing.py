"""Models that a server lists at /v1/models, and the one that a profile means.

Owns: parsing the list, and the choice of the name for requests. Must not know HTTP.
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sparkdash.domain.profile import Profile


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
    cards = answer.get("data") if isinstance(answer, dict) else None
    named = [card for card in cards if _is_named(card)] if isinstance(cards, list) else []
    bases: dict[object, str] = {}
    for card in named:
        if not card.get("parent"):  # vLLM's LoRA adapters name the model that they belong to
            bases.setdefault(_weights(card), card["id"])
    return Listing(tuple(card["id"] for card in named), tuple(bases.values()))


def model_of(profile: Profile, listing: Listing) -> str | None:
    """Choose the server's name of the profile's model; None when the server lists several and none is the profile's.

    The order of choice: the profile's `model_id`; a listed name that the profile knows; the only listed model. For a
    server that lists nothing, the profile's own name.
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


def _is_named(card: object) -> bool:
    return isinstance(card, Mapping) and isinstance(card.get("id"), str)


def _weights(card: Mapping[str, Any]) -> object:
    """Weights of a listed model. vLLM and SGLang name them as `root`, and list each further name of one model
    separately.
    """
    root = card.get("root")
    return root if isinstance(root, str) and root else (card["id"],)
