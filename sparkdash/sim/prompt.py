"""Parsing of the four generation protocols into one prompt text and its limits.

The template puts tools and system text first and every turn after the last. A conversation's next prompt therefore
begins with all of the previous one and its answer, as prefix caching requires.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkdash.sim.engine import RefusedError

_CALL = re.compile(r"\[\[call (\w[\w.-]*)(?: (\w+)=(.*?))?\]\]")
_WRITE = re.compile(r"\[\[write ([1-9]\d{0,6}) tokens\]\]")
_QUOTED = 400
"""Characters of a tool's result that are repeated, the last ones."""


@dataclass(frozen=True, slots=True)
class OrderedCall:
    """Ordered call of one tool."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class PromptOrders:
    """Orders of one prompt; usually none."""

    call: OrderedCall | None = None
    returned: str | None = None
    """Result of a tool that was called by order, in ASCII and on one line."""
    tokens: int | None = None


NOTHING = PromptOrders()


def read_orders(body: Mapping[str, Any], turns: Sequence[Mapping[str, Any]]) -> PromptOrders:
    """Read the orders of the user's last turns; `body` has the tools in any protocol's form.

    OpenClaw ends each request with a user's turn of its own, behind the prompt or the tool's result.
    """
    asked, returned = "", None
    for turn in reversed(turns):
        result = _result(turn)
        if result is None and turn.get("role") == "user":
            asked = content_text(turn.get("content")) + asked
        elif result is not None:
            returned = result if returned is None else returned
        elif asked and (returned is None or _CALL.search(asked)):
            break
    return _read(asked, body, returned)


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
    maps = [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
    results = [part for part in maps if part.get("type") == "tool_result"]
    return content_text(results[-1].get("content")) if results else None


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Parsed request of any protocol."""

    text: str
    limit: int | None
    """Most tokens of the answer; None: the rest of the context."""
    stream: bool = False
    stops: tuple[str, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    seed: str = ""
    orders: PromptOrders = NOTHING


def parse_chat(body: Mapping[str, Any]) -> GenerationRequest:
    turns = _list(body, "messages")
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    return _ask(body, _template(body.get("tools"), turns), limit, turns)


def parse_completion(body: Mapping[str, Any]) -> GenerationRequest:
    """Parse /v1/completions; one prompt. The default limit is 16 tokens, as in vLLM."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise RefusedError("prompt: the simulated engine takes one string", param="prompt")
    return _ask(body, prompt, body.get("max_tokens") or 16)


def parse_response(body: Mapping[str, Any]) -> GenerationRequest:
    source = body.get("input", "")
    turns = [{"role": "user", "content": source}] if isinstance(source, str) else list(source)
    if body.get("instructions"):
        turns.insert(0, {"role": "system", "content": body["instructions"]})
    return _ask(body, _template(body.get("tools"), turns), body.get("max_output_tokens"), turns)


def parse_message(body: Mapping[str, Any]) -> GenerationRequest:
    if not isinstance(body.get("max_tokens"), int):
        raise RefusedError("max_tokens: Field required", param="max_tokens")
    turns = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    asked = {**body, "stop": body.get("stop_sequences")}
    return _ask(asked, counted_prompt(body, turns), body["max_tokens"], _list(body, "messages"))


def counted_prompt(body: Mapping[str, Any], turns: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the prompt of the messages alone, for /v1/messages/count_tokens and /tokenize."""
    return _template(body.get("tools"), [*turns, *_list(body, "messages")])


def _ask(
    body: Mapping[str, Any], prompt: str, limit: object, turns: Sequence[Mapping[str, Any]] = ()
) -> GenerationRequest:
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise RefusedError(f"max_tokens must be at least 1, got {limit}.", param="max_tokens")
    if body.get("n", 1) not in (None, 1):
        raise RefusedError("n: the simulated engine gives one choice", param="n")
    stops = body.get("stop") or ()
    return GenerationRequest(
        text=prompt,
        limit=limit,
        stream=bool(body.get("stream")),
        stops=(stops,) if isinstance(stops, str) else tuple(str(stop) for stop in stops),
        ignore_eos=bool(body.get("ignore_eos")),
        min_tokens=int(body.get("min_tokens") or 0),
        seed=str(body.get("seed") or ""),
        orders=read_orders(body, turns),
    )


def _template(tools: object, turns: Sequence[Mapping[str, Any]]) -> str:
    head = f"<|tools|>\n{json.dumps(tools, sort_keys=True)}\n" if tools else ""
    return head + "".join(_turn(turn) for turn in turns) + "<|assistant|>\n"


def _turn(turn: Mapping[str, Any]) -> str:
    if not isinstance(turn, Mapping):
        raise RefusedError("messages: Input should be a valid dictionary", param="messages")
    rest = {key: turn[key] for key in ("tool_calls", "arguments", "output") if turn.get(key)}
    more = json.dumps(rest, sort_keys=True) if rest else ""
    return f"<|{turn.get('role') or turn.get('type') or 'user'}|>\n{content_text(turn.get('content'))}{more}<|end|>\n"


def _list(body: Mapping[str, Any], key: str) -> list[Any]:
    value = body.get(key)
    if not isinstance(value, list) or not value:
        raise RefusedError(f"{key}: Field required", param=key)
    return value
