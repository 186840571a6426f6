"""Request keys that make an engine's measured requests comparable in length, cost and counts.

Owns: the keys beyond OpenAI's that force a length, bypass caches and count tokens, and each engine's route for
counting the tokens of a text. Must not know: suites, HTTP.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkdash.domain.profile import EngineKind

_OWNERS = {
    "vllm": EngineKind.VLLM,
    "sglang": EngineKind.SGLANG,
    "llamacpp": EngineKind.LLAMACPP,
    "tensorrt_llm": EngineKind.TRTLLM,
    "sparkdash-sim": EngineKind.SIM,
}
"""`owned_by` in /v1/models of each engine's server."""
SIMULATED = "SIMULATED"
"""Prefix of a simulated model's description in sparkdash's own gateway."""
GATEWAY = "sparkdash"
"""`owned_by` in /v1/models of sparkdash's own gateway."""
_VLLM_LIKE = frozenset({EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TRTLLM, EngineKind.SIM})


@dataclass(frozen=True, slots=True)
class Counting:
    """Request that returns the number of tokens of a prompt."""

    path: str
    body: dict[str, Any]
    templated: bool
    """Whether the count includes the chat template."""


def engine_kind_of(models: Mapping[str, Any]) -> EngineKind:
    """Return the engine kind behind an answer of /v1/models; `openai` when it does not say."""
    owners = [card.get("owned_by") for card in _cards(models)]
    return next((_OWNERS[owner] for owner in owners if owner in _OWNERS), EngineKind.OPENAI)


def served_models(models: Mapping[str, Any]) -> list[str]:
    """List the names in an answer of /v1/models, in its order."""
    return [str(card["id"]) for card in _cards(models) if "id" in card]


def is_simulated(models: Mapping[str, Any], model: str) -> bool:
    """Whether a model in an answer of /v1/models runs on a simulated engine, as sparkdash's own gateway marks it.

    An unlisted name may be any of the listed ones.
    """
    listed = _cards(models)
    mine = [card for card in listed if card.get("id") == model]
    roots = [card.get("root") for card in mine]  # of `auto`, what runs now
    asked = [card for card in listed if card in mine or card.get("id") in roots] or listed
    return any(
        _OWNERS.get(str(card.get("owned_by"))) is EngineKind.SIM or str(card.get("description")).startswith(SIMULATED)
        for card in asked
    )


def _cards(models: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    cards = models.get("data")
    return [card for card in cards if isinstance(card, Mapping)] if isinstance(cards, list) else []


def forced_length(kind: EngineKind, tokens: int) -> dict[str, Any]:
    """Keys for an answer of exactly `tokens`, where the engine supports it; elsewhere at most that many."""
    length: dict[str, Any] = {"max_tokens": tokens}
    if kind in _VLLM_LIKE:
        return {**length, "min_tokens": tokens, "ignore_eos": True}
    return {**length, "ignore_eos": True} if kind is EngineKind.LLAMACPP else length


def uncached_prompt(kind: EngineKind, salt: str) -> dict[str, Any]:
    """Keys that exclude prefixes of earlier requests with another salt."""
    if kind in _VLLM_LIKE:
        return {"cache_salt": salt}
    return {"cache_prompt": False} if kind is EngineKind.LLAMACPP else {}


def usage_counts(kind: EngineKind) -> dict[str, Any]:
    """Keys for token counts in `usage`, and in every chunk where the engine supports it."""
    options = {"include_usage": True} | ({"continuous_usage_stats": True} if kind in _VLLM_LIKE else {})
    return {"stream_options": options}


def count_request(kind: EngineKind, model: str, content: str) -> Counting | None:
    """Build the request that counts the tokens of a user's message; None when the engine has no route for it."""
    match kind:
        case EngineKind.VLLM | EngineKind.SIM:
            body = {"model": model, "messages": [{"role": "user", "content": content}]}
            return Counting("/tokenize", body, templated=True)
        case EngineKind.SGLANG:
            return Counting("/tokenize", {"model": model, "prompt": content}, templated=False)
        case EngineKind.LLAMACPP:
            return Counting("/tokenize", {"model": model, "content": content}, templated=False)
        case _:
            return None


def tokenize_request(kind: EngineKind, model: str, text: str) -> Counting | None:
    """Build the request that counts the bare tokens of a text, to tell tokenizers apart; None without a route."""
    match kind:
        case EngineKind.VLLM | EngineKind.SIM | EngineKind.SGLANG:
            body = {"model": model, "prompt": text, "add_special_tokens": False}
            return Counting("/tokenize", body, templated=False)
        case EngineKind.LLAMACPP:
            return Counting("/tokenize", {"model": model, "content": text}, templated=False)
        case _:
            return None


def token_count(answer: Mapping[str, Any]) -> int | None:
    """Return the count in an answer of `counting`'s route."""
    count = answer.get("count")
    if isinstance(count, int):
        return count
    tokens = answer.get("tokens")
    return len(tokens) if isinstance(tokens, list) else None
