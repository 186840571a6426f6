"""Orders in a prompt: commands that make the simulated engine call a tool or write at a given length.

Owns: the orders, and which turn they are read from. Must not know engines, or the shapes of answers.

[[call NAME KEY=VALUE]]   a call of that tool, if the request offers it; `KEY=VALUE`, its one argument, may be missing
[[write N tokens]]        an answer of N tokens, if nothing else ends it before

They are read from the user's last turn. Once tools have answered it, the engine says what the last of them returned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_CALL = re.compile(r"\[\[call (\w[\w.-]*)(?: (\w+)=(.*?))?\]\]")
_WRITE = re.compile(r"\[\[write ([1-9]\d{0,6}) tokens\]\]")
_QUOTED = 400
"""Characters of a tool's result that are repeated, the last ones."""


@dataclass(frozen=True, slots=True)
class OrderedCall:
    """Ordered call of one tool."""

    name: str
    arguments: str
    """JSON object."""


@dataclass(frozen=True, slots=True)
class PromptOrders:
    """Orders of one prompt; usually none."""

    call: OrderedCall | None = None
    returned: str | None = None
    """Result of a tool that was called by order, in ASCII and on one line."""
    tokens: int | None = None
    """Length of the answer."""


NOTHING = PromptOrders()


def read_orders(body: Mapping[str, Any], turns: Sequence[Mapping[str, Any]]) -> PromptOrders:
    """Read the orders of the user's last turn. `body` has the tools, in the form of any protocol."""
    returned: str | None = None
    for turn in reversed(turns):
        result = _result(turn)
        if result is not None:
            returned = result if returned is None else returned
        elif turn.get("role") == "user":
            return _read(content_text(turn.get("content")), body, returned)
    return NOTHING


def content_text(content: object) -> str:
    """Return the words of a turn's content: a string, one part, or parts. A part without words gives its type."""
    if isinstance(content, list):
        return "".join(content_text(part) for part in content)
    if isinstance(content, Mapping):
        return str(content.get("text") or content.get("content") or f"<|{content.get('type', 'part')}|>")
    return "" if content is None else str(content)


def _read(asked: str, body: Mapping[str, Any], returned: str | None) -> PromptOrders:
    length, wanted = _WRITE.search(asked), _CALL.search(asked)
    tokens = int(length[1]) if length else None
    if wanted is None or wanted[1] not in _offered(body.get("tools")) or body.get("tool_choice") == "none":
        return PromptOrders(tokens=tokens)
    if returned is not None:
        plain = " ".join(returned.encode("ascii", "replace").decode().split())
        return PromptOrders(returned=plain[-_QUOTED:], tokens=tokens)
    name, key, value = wanted.groups()
    return PromptOrders(OrderedCall(name, json.dumps({key: value} if key else {})))


def _offered(tools: object) -> Iterable[str]:
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            inner = tool.get("function")  # as chat completions have it; the other protocols say it without
            yield str((inner if isinstance(inner, Mapping) else tool).get("name"))


def _result(turn: Mapping[str, Any]) -> str | None:
    """Return a tool's result in this turn (chat completions, responses and messages); None for any other turn."""
    if turn.get("role") == "tool":
        return content_text(turn.get("content"))
    if turn.get("type") == "function_call_output":
        return content_text(turn.get("output"))
    parts = turn.get("content")
    results = [part for part in parts if _is_result(part)] if isinstance(parts, list) else []
    return content_text(results[-1].get("content")) if results else None


def _is_result(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "tool_result"
