"""Care: what a request must be told differently for the engine that answers it, and its answer for the client.

Owns: the order of it: the profile's rules, then counts. Pure.
Rule: without a rule that applies, the engine reads the client's own bytes and the client the engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.gateway.peek import Peeked
from sparkdash.gateway.rewrite import Edits, rename, rewrite
from sparkdash.gateway.route import Dialect, Route

TOLD_WHEN_ASKED = frozenset({EngineKind.VLLM, EngineKind.SGLANG, EngineKind.TRTLLM, EngineKind.SIM})
"""Engines that count a stream's tokens only if `stream_options.include_usage` is sent, and are known to take it.
Not llama.cpp, whose last chunk has `timings` in any case: asking would move them into the chunk that is taken out."""
_STREAM_OPTIONS = "stream_options"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request as the engine is to get it."""

    body: bytes
    adds_usage: bool = False
    """The counts were asked for on our behalf: the chunk that carries them is not for the client."""


def prepare(body: bytes, asked: Peeked, route: Route, profile: Profile, names: Sequence[str]) -> Prepared:
    """The body for this engine. `names`: the models that it accepts; empty: whatever the client wrote."""
    name = names[0] if names and asked.model is not None and asked.model not in names else None
    if asked.span is not None:
        return Prepared(body if name is None else rename(body, asked.span, name))
    put: dict[str, object] = {} if name is None else {"model": name}
    fill = dict(profile.request) if route.generates else {}
    adds_usage = _lacks_usage(asked, route, profile)
    if adds_usage:
        put[_STREAM_OPTIONS] = {**(asked.stream_options or {}), "include_usage": True}
    return Prepared(rewrite(body, Edits(put, fill)), adds_usage)


def _lacks_usage(asked: Peeked, route: Route, profile: Profile) -> bool:
    """Would a stream pass without the engine's counts? Options that say nothing of usage are left alone: engines differ in
    what they take them for (vLLM before 0.18 for a yes)."""
    if not asked.stream or route.dialect not in (Dialect.CHAT, Dialect.COMPLETIONS):
        return False
    if profile.engine not in TOLD_WHEN_ASKED or _STREAM_OPTIONS in profile.request:
        return False
    options = asked.stream_options
    return options is not None and (not options or options.get("include_usage") is False)
