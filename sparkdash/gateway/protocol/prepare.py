"""Prepare: changes of a request's body for the engine that answers it, and what must change in the answer.

Rule: where nothing applies, the engine gets the client's own bytes and the client the engine's. Pure.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from itertools import pairwise
from typing import Any, NamedTuple

from sparkdash.domain.base import per_request
from sparkdash.domain.profile import FixName, Profile
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.engines.argv import version_of
from sparkdash.engines.registry import adapter_of
from sparkdash.errors import AdmissionError
from sparkdash.gateway.protocol.frames import PROGRESS_MARK
from sparkdash.gateway.protocol.peek import NO_OPTIONS, PeekedBody
from sparkdash.gateway.protocol.route import Dialect, Route
from sparkdash.gateway.protocol.splices import RERANK_PATHS, Ranking, as_texts
from sparkdash.limits import shown

_DECODER = json.JSONDecoder()
_json = json.JSONEncoder(separators=(",", ":")).encode
"""Encodes as ASCII, since a client's lone surrogate has no UTF-8 bytes."""
_PLAIN = re.compile(r"[a-z0-9_]+", re.IGNORECASE | re.ASCII)
_SPACE = " \t\n\r"
MOST_MEMBERS = 1000
"""Keys of a body, which are read one by one: real ones have some tens, and 300,000 of them took seconds of the loop."""


@dataclass(frozen=True)
class Edits:
    """Changes by top-level key. Derived values are cached: keep an instance that serves many requests."""

    put: Mapping[str, Any] = field(default_factory=dict)
    """Values that replace the client's; an object is merged into the client's own, key by key."""
    fill: Mapping[str, Any] = field(default_factory=dict)
    """Values for keys that the client did not send."""
    drop: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.put or self.fill or self.drop)

    @cached_property
    def added(self) -> bytes:
        """Members for a body that has none of the keys."""
        return _json({**self.fill, **self.put})[1:-1].encode()

    @cached_property
    def needles(self) -> tuple[bytes, ...] | None:
        """Keys as they are written in a body; None if they can be written in several ways."""
        keys = (*self.put, *self.fill, *self.drop)
        return tuple(b'"%b"' % key.encode() for key in keys) if all(map(_PLAIN.fullmatch, keys)) else None


class _Member(NamedTuple):
    """A member: text[at:value] is its key and colon, text[value:end] its value."""

    key: str
    at: int
    value: int
    end: int


def rewrite_body(body: bytes, edits: Edits, *, has_none: bool = False) -> bytes:
    """Apply the edits to a JSON object; new members go to its end. `has_none`: none of the keys is in it."""
    if not edits:
        return body
    if (has_none or _lacks(body, edits)) and (appended := _appended(body, edits)) is not None:
        return appended
    return _spliced(body, edits)


def rename_model(form: bytes, span: tuple[int, int], name: str) -> bytes:
    """Replace the name at the position that `peek_body` found in a multipart body."""
    return form[: span[0]] + name.encode() + form[span[1] :]


def _spliced(body: bytes, edits: Edits) -> bytes:
    """Apply the edits member by member; the same object where none applies."""
    text = body.decode("utf-8-sig")
    members = list(_members(text))
    kept = [member for member in members if member.key not in edits.drop]
    stays = {member.key for member in kept}
    added = {**edits.fill, **edits.put}
    added = {key: value for key, value in added.items() if key not in stays}
    if not (added or len(kept) < len(members) or stays & edits.put.keys()):
        return body
    return "".join(_pieces(text, members, kept, edits.put, added)).encode()


def _lacks(body: bytes, edits: Edits) -> bool:
    """Whether a plain search shows that the body has none of the keys."""
    needles = edits.needles
    if needles is None or body.find(b"\\u") >= 0:
        return False  # escapes may spell a key in other ways
    return all(body.find(needle) < 0 for needle in needles)


def _appended(body: bytes, edits: Edits) -> bytes | None:
    """Append the members without parsing the body; None if it must be parsed."""
    if body[:1] != b"{":
        return None
    end = body.rindex(b"}")
    before = body[:end].rstrip()
    if before == b"{":
        return None
    return b"%b,%b%b" % (before, edits.added, body[len(before) :]) if edits.added else body


def _pieces(
    text: str, members: list[_Member], kept: list[_Member], put: Mapping[str, Any], added: Mapping[str, Any]
) -> Iterator[str]:
    open_to = members[0].at if members else text.index("{") + 1
    close_from = members[-1].end if members else open_to
    following = {member: after.at for member, after in pairwise(members)}
    yield text[:open_to]
    for number, member in enumerate(kept, 1):
        yield text[member.at : member.value]
        written = text[member.value : member.end]
        yield _json(_merged(written, put[member.key])) if member.key in put else written
        if number < len(kept):
            yield text[member.end : following[member]]
    if added:
        yield ("," if kept else "") + _json(added)[1:-1]
    yield text[close_from:]


def _merged(written: str, value: Any) -> Any:
    theirs = json.loads(written) if isinstance(value, Mapping) else None
    return {**theirs, **value} if isinstance(theirs, dict) else value


def _members(text: str) -> Iterator[_Member]:
    """Yield the top-level members of a valid JSON object. Raises ValueError: they are too many."""
    at = _skip(text, _skip(text, 0) + 1)
    for _ in range(MOST_MEMBERS):
        if text[at] == "}":
            return
        key, colon = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, colon) + 1)
        _, end = _DECODER.raw_decode(text, value)
        yield _Member(key, at, value, end)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    raise ValueError(f"it has more than {MOST_MEMBERS} keys")


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


Body = dict[str, Any]
Changes = dict[str, Any]
"""New values of top-level keys; GONE removes a key."""

GONE = object()
_BILLING = "x-anthropic-billing-header"


@dataclass(frozen=True, slots=True)
class CompatTarget:
    """The engine that will read the request."""

    engine: EngineAdapter
    version: tuple[int, ...] | None = None
    """(0, 23) for "0.23…"; None: unknown."""
    harmony: bool = False
    """Whether it serves a gpt-oss model."""
    system_first: bool = False
    """Whether its template was seen to refuse all but one system message at the beginning."""

    def needs(self, name: FixName) -> bool:
        match name:
            case FixName.CLAUDE_BILLING_LINE | FixName.RESPONSES_MAX_TOKENS | FixName.ECHOED_PROGRESS:
                return True
            case FixName.RESPONSES_SEALED_REASONING:
                return self.harmony
            case FixName.ONE_SYSTEM_MESSAGE:
                return self.system_first
        return name in self.engine.needs_fixes(self.version, harmony=self.harmony)


@dataclass(frozen=True, slots=True)
class CompatRule:
    """Named rule: which bodies may need it, and what it changes."""

    name: FixName
    dialects: frozenset[Dialect]
    needle: bytes
    """Bytes without which a body has nothing to change."""
    edit: Callable[[Body, CompatTarget], Changes]


def rules_for(dialect: Dialect, off: Collection[FixName], target: CompatTarget) -> tuple[CompatRule, ...]:
    """List the rules that requests for this engine may need."""
    return tuple(one for one in _OF[dialect] if one.name not in off and target.needs(one.name))


def apply_rules(body: bytes, rules: Iterable[CompatRule], target: CompatTarget) -> bytes:
    """Apply the rules to a JSON object for this engine; the same object when nothing is to change."""
    # not `in`: it tries the needle as a number first, and raising and dropping that error costs ten times the search
    needed = [rule for rule in rules if body.find(rule.needle) >= 0]
    if not needed:
        return body
    now: Body = json.loads(body.decode("utf-8-sig"))
    changes: Changes = {}
    for rule in needed:
        made = rule.edit(now, target)
        changes |= made
        now = {key: value for key, value in (now | made).items() if value is not GONE}
    put = {key: value for key, value in changes.items() if value is not GONE}
    return rewrite_body(body, Edits(put, drop=frozenset(changes.keys() - put.keys())))


def _without_billing(body: Body, _target: CompatTarget) -> Changes:
    system = body.get("system")
    if not isinstance(system, list):
        return {}
    kept = [block for block in system if not _text(block).startswith(_BILLING)]
    return {} if len(kept) == len(system) else {"system": kept or GONE}


def _text(block: object) -> str:
    text = block.get("text") if isinstance(block, dict) else None
    return text if isinstance(text, str) else ""


_SYSTEM = frozenset({"system"})
_INSTRUCTIONS = frozenset({"system", "developer"})


def _system_turns_folded(body: Body, _target: CompatTarget) -> Changes:
    """Turn system messages among those of /v1/messages into text of the user's turns."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not any(_role(message) in _SYSTEM for message in messages):
        return {}
    return {"messages": _in_user_turns(messages, _SYSTEM, "text")}


def _one_system(body: Body, _target: CompatTarget) -> Changes:
    """Join the instructions at the beginning of a chat; turn later ones into text of the user's turns, in their places.

    Later ones do not move to the front: each would change the whole prefix of the conversation.
    """
    head, rest = _split_turns(body.get("messages"), "text")
    system = [turn.get("content") for turn in head]
    made = [{"role": "system", "content": reduce(partial(_joined, kind="text"), system)}, *rest] if head else rest
    return {} if made == body.get("messages") else {"messages": made}


def _one_instruction(body: Body, _target: CompatTarget) -> Changes:
    """Do the same for the Responses API, whose first instructions have a key of their own."""
    head, rest = _split_turns(body.get("input"), "input_text")
    texts = [body.get("instructions"), *(_plain(turn.get("content")) for turn in head)]
    changes: Changes = {"instructions": _GAP.join(filter(None, texts))} if head else {}
    return changes if rest == body.get("input") else changes | {"input": rest}


def _split_turns(turns: Any, kind: str) -> tuple[list[Any], Any]:
    """Return the instructions at the beginning, and the other turns with later instructions folded into them."""
    if not isinstance(turns, list):
        return [], turns  # nothing changes
    first = next((at for at, turn in enumerate(turns) if _role(turn) not in _INSTRUCTIONS), len(turns))
    return turns[:first], _in_user_turns(turns[first:], _INSTRUCTIONS, kind)


_GAP = "\n\n"


def _plain(content: object) -> str:
    return content if isinstance(content, str) else _GAP.join(map(_text, _blocks(content, "")))


def _in_user_turns(turns: list[Any], roles: frozenset[str], kind: str) -> list[Any]:
    """Make turns of these roles the user's, and one with the user's turn beside them."""
    made: list[Any] = []
    was_folded = False
    """Whether the last turn of `made` ends with such a text."""
    for turn in turns:
        is_folded = _role(turn) in roles
        if is_folded:
            turn = turn | {"role": "user"}
        if (is_folded or was_folded) and made and _role(made[-1]) == _role(turn) == "user":
            made[-1] = made[-1] | {"content": _joined(made[-1].get("content"), turn.get("content"), kind)}
        else:
            made.append(turn)
        was_folded = is_folded
    return made


def _role(turn: object) -> str | None:
    role = turn.get("role") if isinstance(turn, dict) else None
    return role if isinstance(role, str) else None


def _joined(first: object, second: object, kind: str) -> Any:
    """Join two contents: texts as a text, others as a list of blocks."""
    if isinstance(first, str) and isinstance(second, str):
        return _GAP.join(filter(None, (first, second)))
    return [*_blocks(first, kind), *_blocks(second, kind)]


def _blocks(content: object, kind: str) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": kind, "text": content}] if isinstance(content, str) and content else []


def _developers_as_system(body: Body, _target: CompatTarget) -> Changes:
    """Rename the role that most templates drop without a word."""
    key = "messages" if "messages" in body else "input"
    turns = body.get(key)
    if not isinstance(turns, list) or not any(_role(turn) == "developer" for turn in turns):
        return {}
    return {key: [turn | {"role": "system"} if _role(turn) == "developer" else turn for turn in turns]}


def _without_news(body: Body, _target: CompatTarget) -> Changes:
    thinking = body.get("thinking")
    adaptive = isinstance(thinking, dict) and thinking.get("type") == "adaptive"
    news = ("context_management", "output_config", *(("thinking",) if adaptive else ()))
    return {key: GONE for key in news if key in body}


def _known_tools(body: Body, target: CompatTarget) -> Changes:
    tools = body.get("tools")
    if not isinstance(tools, list):
        return {}
    kept = [tool for tool in tools if _is_taken(tool, target)]
    return {} if len(kept) == len(tools) else {"tools": kept or GONE}


def _is_taken(tool: object, target: CompatTarget) -> bool:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return target.engine.takes_tool_type(kind, harmony=target.harmony)


def _open_reasoning(body: Body, _target: CompatTarget) -> Changes:
    """Remove the sealed copy of reasoning, which only the cloud can read, and items with nothing else in them."""
    items = body.get("input")
    if not isinstance(items, list):
        return {}
    made = []
    for item in items:
        if isinstance(item, dict) and item.get("type") == "reasoning" and "encrypted_content" in item:
            item = {key: value for key, value in item.items() if key != "encrypted_content"}
            if not item.get("content"):
                continue
        made.append(item)
    return {} if made == items else {"input": made}


def _renamed_limit(body: Body, _target: CompatTarget) -> Changes:
    if "max_tokens" not in body:
        return {}
    limit = {} if "max_output_tokens" in body else {"max_output_tokens": body["max_tokens"]}
    return {"max_tokens": GONE, **limit}


def _without_metadata(body: Body, _target: CompatTarget) -> Changes:
    return {"client_metadata": GONE} if "client_metadata" in body else {}


def _without_progress(body: Body, _target: CompatTarget) -> Changes:
    messages = body.get("messages")
    if not isinstance(messages, list):
        return {}
    made = [_not_ours(message) if isinstance(message, dict) else message for message in messages]
    return {} if made == messages else {"messages": made}


def _not_ours(message: dict[str, Any]) -> dict[str, Any]:
    if message.get("role") != "assistant":
        return message
    changed: dict[str, Any] = {}
    for key in ("reasoning_content", "reasoning"):
        if isinstance(text := message.get(key), str):
            changed[key] = _theirs(text)
    if isinstance(blocks := message.get("content"), list):
        changed["content"] = [made for block in blocks if (made := _thinking(block)) is not None]
    made = message | changed
    return {key: value for key, value in made.items() if key not in ("reasoning_content", "reasoning") or value}


def _thinking(block: Any) -> Any:
    """Remove our lines from a thinking block; None when nothing else is left."""
    text = block.get("thinking") if isinstance(block, dict) else None
    if not isinstance(text, str) or PROGRESS_MARK not in text:
        return block
    theirs = _theirs(text)
    return block | {"thinking": theirs} if theirs else None


def _theirs(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(PROGRESS_MARK))


_MESSAGES = frozenset({Dialect.MESSAGES})
_RESPONSES = frozenset({Dialect.RESPONSES})
_CHATS = frozenset({Dialect.CHAT, Dialect.MESSAGES})
_ROLES = frozenset({Dialect.CHAT, Dialect.RESPONSES})
COMPAT_RULES = (
    CompatRule(FixName.CLAUDE_BILLING_LINE, _MESSAGES, _BILLING.encode(), _without_billing),
    CompatRule(FixName.MESSAGES_SYSTEM_TURNS, _MESSAGES, b'"system"', _system_turns_folded),
    CompatRule(FixName.MESSAGES_NEW_KEYS, _MESSAGES, b'"', _without_news),
    CompatRule(FixName.RESPONSES_TOOL_TYPES, _RESPONSES, b'"tools"', _known_tools),
    CompatRule(FixName.RESPONSES_SEALED_REASONING, _RESPONSES, b'"encrypted_content"', _open_reasoning),
    CompatRule(FixName.RESPONSES_MAX_TOKENS, _RESPONSES, b'"max_tokens"', _renamed_limit),
    CompatRule(FixName.RESPONSES_CLIENT_METADATA, _RESPONSES, b'"client_metadata"', _without_metadata),
    CompatRule(FixName.DEVELOPER_AS_SYSTEM, _ROLES, b'"developer"', _developers_as_system),
    CompatRule(FixName.ONE_SYSTEM_MESSAGE, frozenset({Dialect.CHAT}), b'"role"', _one_system),
    CompatRule(FixName.ONE_SYSTEM_MESSAGE, _RESPONSES, b'"role"', _one_instruction),
    CompatRule(FixName.ONE_SYSTEM_MESSAGE, _MESSAGES, b'"role"', _system_turns_folded),
    CompatRule(FixName.ECHOED_PROGRESS, _CHATS, PROGRESS_MARK.encode(), _without_progress),
)
"""All rules, in the order in which they are applied."""
_OF = {dialect: tuple(one for one in COMPAT_RULES if dialect in one.dialects) for dialect in Dialect}


_COUNTS_ARE_ASKED_FOR = frozenset({Dialect.CHAT, Dialect.COMPLETIONS})
_STREAM_OPTIONS = "stream_options"
_USAGE = {"include_usage": True}
_WITH_USAGE = Edits({_STREAM_OPTIONS: _USAGE})
_EFFORT = "reasoning_effort"
_EFFORT_IN = {Dialect.RESPONSES: "reasoning", Dialect.MESSAGES: "output_config"}
"""Parent key of the effort in other protocols than chat, there called `effort`."""
_HARMONY = "gpt-oss"


class AnswerChanges(NamedTuple):
    """Changes that the answer to a prepared request needs."""

    drops_usage: bool = False
    """Whether the gateway asked for the counts: the chunk that carries them is not for the client."""
    mirrors: bool = False
    """Whether the answer's reasoning is sent under both of its names."""
    ranking: Ranking | None = None
    """Set where the answer of a reranker has another form than the client expects."""


AS_IT_IS = AnswerChanges()


@per_request
class _ProfileRules:
    """Decisions of a profile and its engine's version that hold for every request to it."""

    edits: bool
    """Whether the profile strips, sets or fills in keys."""
    engine_counts: bool
    """Whether the engine counts a stream's tokens when asked to, and the profile leaves the asking to the gateway."""
    target: CompatTarget
    compat: Mapping[Dialect, tuple[CompatRule, ...]]
    """Compat rules that the engine needs and the profile does not switch off."""
    ranks_texts: bool
    """Whether the server reranks in words of its own."""
    mirrors: bool
    """Whether a chat's reasoning goes to the client under both of its names."""

    @classmethod
    def of(cls, profile: Profile, target: CompatTarget) -> "_ProfileRules":
        edits = profile.request or profile.request_set or profile.request_strip or profile.modes or profile.adapters
        sets_usage = _STREAM_OPTIONS in profile.request or _STREAM_OPTIONS in profile.request_set
        engine = adapter_of(profile)
        counts = engine.usage_on_request and not sets_usage
        compat = {dialect: rules_for(dialect, profile.mends_off, target) for dialect in Dialect}
        return cls(bool(edits), counts, target, compat, engine.ranks_texts, profile.mirror_reasoning)


def engine_name(peeked: PeekedBody, names: Sequence[str], profile: Profile) -> str | None:
    """Return the engine's own name of the model or adapter where it differs from the client's; else None."""
    if not names or peeked.model is None or peeked.model in names:
        return None
    return profile.adapter(peeked.model) or names[0]


class RequestPreparer:
    """Prepares requests for engines; keeps the rules derived from each profile, as reading a model's fields is slow."""

    def __init__(self) -> None:
        self._rules: dict[str, tuple[Profile, str | None, bool, _ProfileRules]] = {}
        """By profile name: profile, version and `system_first`, for which the rules are; replaced when one differs."""

    def prepare(
        self,
        body: bytes,
        peeked: PeekedBody,
        route: Route,
        profile: Profile,
        names: Sequence[str] = (),
        version: str | None = None,
        *,
        system_first: bool = False,
    ) -> tuple[bytes, AnswerChanges]:
        """Prepare a request's body for the engine of this profile; return it, and what must change in the answer.

        `names`: model names that the engine accepts; empty: any. `version`: the engine's own report of its version;
        without one the profile's is used. `system_first`: see CompatTarget.

        Raises:
            AdmissionError: code `invalid_json`: the body must be parsed, and is nested too deeply or has too long a
            number.
        """
        name = None if not names or peeked.model in names else engine_name(peeked, names, profile)
        if peeked.model_span is not None:
            return body if name is None else rename_model(body, peeked.model_span, name), AS_IT_IS
        rules = self._rules_of(profile, version, system_first)
        adds_usage = peeked.stream and rules.engine_counts and _lacks_usage(peeked, route)
        mirrors = rules.mirrors and route.generates and route.dialect is Dialect.CHAT
        try:
            if name is not None or rules.edits:
                body = rewrite_body(body, _edits(peeked, route, profile, name, adds_usage=adds_usage))
            elif adds_usage:
                body = rewrite_body(body, _WITH_USAGE, has_none=peeked.stream_options is NO_OPTIONS)
            ranking = None
            if route.profile is None:
                if compat := rules.compat[route.dialect]:
                    body = apply_rules(body, compat, rules.target)
                if rules.ranks_texts and route.path in RERANK_PATHS:
                    body, ranking = as_texts(body, peeked.model or profile.name)
        except (ValueError, RecursionError) as error:
            text = f"The request's body is not JSON that sparkdash can read: {shown(str(error))}."
            raise AdmissionError(text, code="invalid_json") from None
        if adds_usage or mirrors or ranking is not None:
            return body, AnswerChanges(adds_usage, mirrors, ranking)
        return body, AS_IT_IS

    def _rules_of(self, profile: Profile, version: str | None, system_first: bool) -> _ProfileRules:
        seen = self._rules.get(profile.name)
        if seen is None or seen[0] is not profile or seen[1] != version or seen[2] is not system_first:
            rules = _ProfileRules.of(profile, _target(profile, version, system_first=system_first))
            seen = self._rules[profile.name] = profile, version, system_first, rules
        return seen[3]


def _edits(peeked: PeekedBody, route: Route, profile: Profile, name: str | None, *, adds_usage: bool) -> Edits:
    put: dict[str, Any] = {}
    if route.generates:
        mode = profile.mode(peeked.model) if peeked.model else None
        put = _spelled(profile.request_set | (profile.modes[mode] if mode else {}), route.dialect)
        if peeked.model and (adapter := profile.adapter(peeked.model)):
            put |= adapter_of(profile).adapter_request(profile, adapter)
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


def _target(profile: Profile, version: str | None, *, system_first: bool) -> CompatTarget:
    words = (profile.name, *profile.serves, *(ref.ref for ref in profile.models.values()))
    return CompatTarget(
        adapter_of(profile),
        version_of(version or profile.engine_version),
        harmony=any(_HARMONY in word.lower() for word in words),
        system_first=system_first,
    )
