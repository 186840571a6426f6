"""Prepare: changes of a request's body for the engine that answers it, and what must change in the answer.

Rule: where nothing applies, the engine gets the client's own bytes and the client the engine's.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sparkdash.domain.base import per_request
from sparkdash.domain.profile import MendName, Profile
from sparkdash.engines.argv import version_of
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import AdmissionError
from sparkdash.gateway.protocol.compat import CompatTarget, apply_rules, rules_for
from sparkdash.gateway.protocol.peek import NO_OPTIONS, PeekedBody
from sparkdash.gateway.protocol.rewrite import Edits, rename_model, rewrite_body
from sparkdash.gateway.protocol.route import Dialect, Route
from sparkdash.gateway.protocol.splices import RERANK_PATHS, Ranking, as_texts
from sparkdash.limits import shown

_COUNTS_ARE_ASKED_FOR = frozenset({Dialect.CHAT, Dialect.COMPLETIONS})
_STREAM_OPTIONS = "stream_options"
_USAGE = {"include_usage": True}
_WITH_USAGE = Edits({_STREAM_OPTIONS: _USAGE})
_EFFORT = "reasoning_effort"
_EFFORT_IN = {Dialect.RESPONSES: "reasoning", Dialect.MESSAGES: "output_config"}
"""Parent key of the effort in other protocols than chat, there called `effort`."""
_HARMONY = "gpt-oss"


class PreparedBody(NamedTuple):
    """Body for the engine, and what must change in its answer."""

    body: bytes
    adds_usage: bool = False
    """Whether the gateway asked for the counts: the chunk that carries them is not for the client."""
    mirrors: bool = False
    """Whether the answer's reasoning is sent under both of its names."""
    ranking: Ranking | None = None
    """Set where the answer of a reranker has another form than the client expects."""


AS_IT_IS = PreparedBody(b"")
"""Stands for an answer that needs no change; the body is sent elsewhere."""


@per_request
class _ProfileRules:
    """Decisions of a profile that hold for every request to it."""

    edits: bool
    """Whether the profile strips, sets or fills in keys."""
    engine_counts: bool
    """Whether the engine counts a stream's tokens when asked to, and the profile leaves the asking to the gateway."""
    off: frozenset[MendName]
    """Compat rules that the profile switches off."""
    ranks_texts: bool
    """Whether the server reranks in words of its own."""
    mirrors: bool
    """Whether a chat's reasoning goes to the client under both of its names."""

    @classmethod
    def of(cls, profile: Profile) -> _ProfileRules:
        edits = profile.request or profile.request_set or profile.request_strip or profile.modes
        sets_usage = _STREAM_OPTIONS in profile.request or _STREAM_OPTIONS in profile.request_set
        engine = adapter_of(profile)
        counts = engine.usage_on_request and not sets_usage
        return cls(bool(edits), counts, frozenset(profile.mends_off), engine.ranks_texts, profile.mirror_reasoning)


def engine_name(peeked: PeekedBody, names: Sequence[str]) -> str | None:
    """Return the engine's own name of the model where it differs from the client's; else None."""
    return names[0] if names and peeked.model is not None and peeked.model not in names else None


class RequestPreparer:
    """Prepares requests for engines; keeps the rules derived from each profile, as reading a model's fields is slow."""

    def __init__(self) -> None:
        self._rules: dict[str, tuple[Profile, _ProfileRules]] = {}
        """Profile and rules by profile name; replaced when the name gets another profile."""

    def prepare(
        self,
        body: bytes,
        peeked: PeekedBody,
        route: Route,
        profile: Profile,
        names: Sequence[str] = (),
        version: str | None = None,
    ) -> PreparedBody:
        """Prepare a request's body for the engine of this profile.

        `names`: model names that the engine accepts; empty: any. `version`: the engine's own report of its version;
        without one the profile's is used.

        Raises:
            AdmissionError: code `invalid_json`: the body must be parsed, and is nested too deeply or has too long a
            number.
        """
        name = engine_name(peeked, names)
        if peeked.model_span is not None:
            return PreparedBody(body if name is None else rename_model(body, peeked.model_span, name))
        rules = self._rules_of(profile)
        adds_usage = peeked.stream and rules.engine_counts and _lacks_usage(peeked, route)
        mirrors = rules.mirrors and route.generates and route.dialect is Dialect.CHAT
        try:
            if name is not None or rules.edits:
                body = rewrite_body(body, _edits(peeked, route, profile, name, adds_usage=adds_usage))
            elif adds_usage:
                body = rewrite_body(body, _WITH_USAGE, has_none=peeked.stream_options is NO_OPTIONS)
            if route.profile is not None:
                return PreparedBody(body, adds_usage, mirrors)
            body, ranking = _mended(body, peeked, route, profile, rules, version)
        except (ValueError, RecursionError) as error:
            text = f"The request's body is not JSON that sparkdash can read: {shown(str(error))}."
            raise AdmissionError(text, code="invalid_json") from None
        return PreparedBody(body, adds_usage, mirrors, ranking)

    def _rules_of(self, profile: Profile) -> _ProfileRules:
        seen = self._rules.get(profile.name)
        if seen is None or seen[0] is not profile:
            seen = self._rules[profile.name] = profile, _ProfileRules.of(profile)
        return seen[1]


def _mended(
    body: bytes, peeked: PeekedBody, route: Route, profile: Profile, rules: _ProfileRules, version: str | None
) -> tuple[bytes, Ranking | None]:
    """Apply the compat rules, and put a rerank request into the server's own words."""
    if needed := rules_for(body, route.dialect, rules.off):
        body = apply_rules(body, needed, _target(profile, version))
    if rules.ranks_texts and route.path in RERANK_PATHS:
        return as_texts(body, peeked.model or profile.name)
    return body, None


def _edits(peeked: PeekedBody, route: Route, profile: Profile, name: str | None, *, adds_usage: bool) -> Edits:
    put: dict[str, Any] = {}
    if route.generates:
        mode = profile.mode(peeked.model) if peeked.model else None
        put = _spelled(profile.request_set | (profile.modes[mode] if mode else {}), route.dialect)
    if name is not None:
        put["model"] = name
    if adds_usage:
        put[_STREAM_OPTIONS] = _USAGE
    if not route.generates:
        return Edits(put)
    return Edits(put, _spelled(profile.request, route.dialect), frozenset(profile.request_strip))


def _spelled(values: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Spell `reasoning_effort` as the protocol does."""
    if not values or _EFFORT not in values or dialect not in _EFFORT_IN:
        return dict(values)
    key = _EFFORT_IN[dialect]
    given = values.get(key)
    nested = {**(given if isinstance(given, Mapping) else {}), "effort": values[_EFFORT]}
    return {**{k: v for k, v in values.items() if k != _EFFORT}, key: nested}


def _lacks_usage(peeked: PeekedBody, route: Route) -> bool:
    """Whether the stream would carry no token counts.

    Options that do not mention usage are left alone: engines differ in their default (vLLM before 0.18 takes them for a
    yes).
    """
    if route.dialect not in _COUNTS_ARE_ASKED_FOR:
        return False
    options = peeked.stream_options
    return options is not None and (not options or options.get("include_usage") is False)


def _target(profile: Profile, version: str | None) -> CompatTarget:
    words = (profile.name, *profile.serves, *(ref.ref for ref in profile.models.values()))
    return CompatTarget(
        adapter_of(profile),
        version_of(version or profile.engine_version),
        harmony=any(_HARMONY in word.lower() for word in words),
    )
