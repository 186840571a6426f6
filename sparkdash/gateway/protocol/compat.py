"""Compat rules: requests that clients send and engines are known to refuse, or to answer more slowly.

Rule 1: a rule with nothing to do costs one search in the body; only what it changes is rewritten.
Rule 2: every rule is named in docs/requests.md, and a profile can switch it off (`mends_off`).
Rule 3: which engine needs a rule, the engine's own folder says (`EngineAdapter.needs_mends`).

Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sparkdash.domain.profile import MendName
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.gateway.protocol.frames import PROGRESS_MARK
from sparkdash.gateway.protocol.rewrite import Edits, rewrite_body
from sparkdash.gateway.protocol.route import Dialect

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

    def needs(self, name: MendName) -> bool:
        return name in self.engine.needs_mends(self.version, harmony=self.harmony)


@dataclass(frozen=True, slots=True)
class CompatRule:
    """Named rule: when it is needed, and what it changes."""

    name: MendName
    dialects: frozenset[Dialect]
    needle: bytes
    """Bytes without which a body has nothing to change."""
    needed: Callable[[CompatTarget], bool]
    edit: Callable[[Body, CompatTarget], Changes]


def rules_for(body: bytes, dialect: Dialect, off: Collection[MendName]) -> list[CompatRule]:
    """List the rules that this body may need, whichever engine reads it."""
    # not `in`: it tries the needle as a number first, and raising and dropping that error costs ten times the search
    return [one for one in _OF[dialect] if body.find(one.needle) >= 0 and one.name not in off]


def apply_rules(body: bytes, rules: Iterable[CompatRule], target: CompatTarget) -> bytes:
    """Apply the rules to a JSON object for this engine; the same object when none is needed."""
    needed = [rule for rule in rules if rule.needed(target)]
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


def _always(_target: CompatTarget) -> bool:
    return True


def _harmony(target: CompatTarget) -> bool:
    return target.harmony


def _without_billing(body: Body, _target: CompatTarget) -> Changes:
    system = body.get("system")
    if not isinstance(system, list):
        return {}
    kept = [block for block in system if not _text(block).startswith(_BILLING)]
    return {} if len(kept) == len(system) else {"system": kept or GONE}


def _text(block: object) -> str:
    text = block.get("text") if isinstance(block, dict) else None
    return text if isinstance(text, str) else ""


def _folded(body: Body, _target: CompatTarget) -> Changes:
    """Turn system messages in the middle into text of the user's turn before them, or into turns of their own."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not any(map(_is_system, messages)):
        return {}
    made: list[Any] = []
    blocks: list[Any] | None = None
    """Content blocks of the last turn, once something was added to it."""
    for message in messages:
        if not _is_system(message):
            made.append(message)
            blocks = None
        elif made and isinstance(made[-1], dict) and made[-1].get("role") == "user":
            if blocks is None:
                blocks = list(_blocks(made[-1].get("content")))
                made[-1] = made[-1] | {"content": blocks}
            blocks += _blocks(message.get("content"))
        else:
            made.append(message | {"role": "user"})
    return {"messages": made}


def _is_system(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") == "system"


def _blocks(content: object) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if isinstance(content, str) else []


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


def _engines_own(
    name: MendName, dialects: frozenset[Dialect], needle: bytes, edit: Callable[[Body, CompatTarget], Changes]
) -> CompatRule:
    """Rule for the engines that name it among their mends."""
    return CompatRule(name, dialects, needle, lambda target: target.needs(name), edit)


_MESSAGES = frozenset({Dialect.MESSAGES})
_RESPONSES = frozenset({Dialect.RESPONSES})
_CHATS = frozenset({Dialect.CHAT, Dialect.MESSAGES})
COMPAT_RULES = (
    CompatRule(MendName.CLAUDE_BILLING_LINE, _MESSAGES, _BILLING.encode(), _always, _without_billing),
    _engines_own(MendName.MESSAGES_SYSTEM_TURNS, _MESSAGES, b'"system"', _folded),
    _engines_own(MendName.MESSAGES_NEW_KEYS, _MESSAGES, b'"', _without_news),
    _engines_own(MendName.RESPONSES_TOOL_TYPES, _RESPONSES, b'"tools"', _known_tools),
    CompatRule(MendName.RESPONSES_SEALED_REASONING, _RESPONSES, b'"encrypted_content"', _harmony, _open_reasoning),
    CompatRule(MendName.RESPONSES_MAX_TOKENS, _RESPONSES, b'"max_tokens"', _always, _renamed_limit),
    _engines_own(MendName.RESPONSES_CLIENT_METADATA, _RESPONSES, b'"client_metadata"', _without_metadata),
    CompatRule(MendName.ECHOED_PROGRESS, _CHATS, PROGRESS_MARK.encode(), _always, _without_progress),
)
"""All rules, in the order in which they are applied."""
_OF = {dialect: tuple(one for one in COMPAT_RULES if dialect in one.dialects) for dialect in Dialect}
