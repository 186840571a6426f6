"""Anthropic's messages as those that chat templates take; `tests/real` compares it with the engine. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sparkdash.domain.base import Frozen
from sparkdash.domain.profile import ModelRef, Mount


class CountRequest(Frozen):
    """Request for one count."""

    model: ModelRef
    mounts: tuple[Mount, ...] = ()
    hf_home: str
    template: str | None = None
    """From `engines.prompting.Prompting`, as are the next two."""
    words: dict[str, Any] = {}
    in_parts: bool | None = None


class CountResult(Frozen):
    """Answer of the counter; exactly one field is set."""

    tokens: int | None = None
    unknown: str | None = None
    """Why only the engine can count this; ends a sentence."""
    refused: str | None = None
    """Why no engine would take the request; ends a sentence."""


class Uncountable(Exception):  # noqa: N818 - its text goes to the client
    """Only the engine can count this; the text becomes `CountResult.unknown`."""


class InvalidPrompt(Exception):  # noqa: N818 - its text goes to the client
    """No engine would take this; the text becomes `CountResult.refused`."""


def encode_count_request(order: CountRequest, body: bytes) -> bytes:
    """Encode a count request and a client's body; the first line is the request's."""
    return order.model_dump_json(exclude_defaults=True).encode() + b"\n" + body


def decode_count_request(sent: bytes) -> tuple[CountRequest, dict[str, Any]]:
    """Decode a count request and a client's body. Raises InvalidPrompt: the body is not a JSON object."""
    first, _, rest = sent.partition(b"\n")
    try:
        body = json.loads(rest.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise InvalidPrompt("the body is not a JSON object")
    return CountRequest.model_validate_json(first), body


Message = dict[str, Any]
BILLING = "x-anthropic-billing-header"
"""Prefix of Claude Code's billing line, which no model should read."""
_MEDIA = frozenset({"image", "document"})
EFFORTS = ("low", "medium", "high", "xhigh", "max")


def chat_messages(body: Message, *, system_first: bool) -> list[Message]:
    """Translate the whole conversation. `system_first`: the template takes a system message only at the beginning.

    Raises:
        Refused: it is not of the protocol.
        Uncountable: it has pictures, or blocks that are newer than this.
    """
    given = _objects(body.get("messages"), "messages")
    system = "".join(_system(body.get("system")))
    if system_first:
        system += "".join(_one(each.get("content")) for each in given if each.get("role") == "system")
    made = _system_message(system)
    for each in given:
        match each.get("role"):
            case "system":
                made += [] if system_first else _system_message(_one(each.get("content")))
            case "user" | "assistant":
                made += _turn(each["role"], each.get("content"))
            case other:
                raise InvalidPrompt(f"a message has the role {other!r}")
    if not made:
        raise InvalidPrompt("there are no messages")
    return made


def chat_tools(body: Message) -> list[Message] | None:
    """Translate the tools; None when the request has none."""
    given = body.get("tools")
    return None if given is None else [_tool(each) for each in _objects(given, "tools")]


def reasoning_effort(body: Message) -> str | None:
    """Return the requested reasoning effort; `none` when thinking is switched off."""
    thinking, config = body.get("thinking"), body.get("output_config")
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        return "none"
    asked_effort = config.get("effort") if isinstance(config, dict) else None
    if asked_effort is not None and asked_effort not in EFFORTS:
        raise InvalidPrompt(f"output_config.effort must be one of {', '.join(EFFORTS)}")
    return asked_effort


def _objects(value: object, key: str) -> list[Message]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InvalidPrompt(f"`{key}` must be a list of objects")
    return value


def _tool(tool: Message) -> Message:
    name, schema = tool.get("name"), tool.get("input_schema")
    if not isinstance(schema, dict):
        raise Uncountable(f"the tool {name!r} has no input_schema")
    function = {
        "name": name,
        "description": tool.get("description"),
        "parameters": schema if "type" in schema else {**schema, "type": "object"},
    }
    more = {key: tool[key] for key in ("strict", "defer_loading") if tool.get(key) is not None}
    return {"type": "function", "function": function | more}


def _system_message(text: str) -> list[Message]:
    return [{"role": "system", "content": text}] if text else []


def _system(content: object) -> Iterator[str]:
    """Yield the texts of a system message, without Claude Code's line."""
    if isinstance(content, str):
        text = content.partition("\n")[2] if content.startswith(BILLING) else content
        if text:
            yield text
        return
    for block in _blocks(content):
        if block.get("type") != "text":
            raise _strange(block)
        if (text := _text(block)) and not text.startswith(BILLING):
            yield text


def _one(content: object) -> str:
    if isinstance(content, str):
        return "" if content.startswith(BILLING) else content
    return "".join(_system(content))


def _turn(role: str, content: object) -> list[Message]:
    """Translate a turn, after the tool results that came with it."""
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    parts = _TurnParts()
    for block in _blocks(content):
        parts.add(block, role)
    if role == "user" and not parts.texts:
        return parts.results
    return [*parts.results, parts.message(role)]


@dataclass
class _TurnParts:
    """Blocks of a turn by what they become in a chat."""

    results: list[Message] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Message] = field(default_factory=list)

    def add(self, block: Message, role: str) -> None:
        match block.get("type"), role:
            case "text", _:
                self.texts += [text] if (text := _text(block)) else []
            case "thinking", _:
                self.thoughts.append(str(block.get("thinking") or ""))
            case "redacted_thinking", _:
                pass  # sealed: only the cloud reads it
            case "tool_use", _:
                self.calls.append(_call(block))
            case "tool_result", "user":
                self.results.append(_result(block))
            case _:
                raise _strange(block)

    def message(self, role: str) -> Message:
        """Build the message of the turn itself; tool results are messages of their own."""
        message: Message = {"role": role}
        if self.thoughts:
            message["reasoning"] = "".join(self.thoughts)
        if self.calls:
            message["tool_calls"] = self.calls
        if self.texts:
            message["content"] = self.texts[0] if len(self.texts) == 1 else self.texts
        return message


def _call(block: Message) -> Message:
    arguments = block.get("input") or {}
    if not isinstance(arguments, dict):
        raise InvalidPrompt("the input of a tool_use must be an object")
    return {
        "id": str(block.get("id") or ""),
        "function": {"name": block.get("name") or "", "arguments": arguments},
        "type": "function",
    }


def _result(block: Message) -> Message:
    content = block.get("content")
    if isinstance(content, list):
        if strange := next((each for each in _blocks(content) if each.get("type") != "text"), None):
            raise _strange(strange)
        content = "\n".join(_text(each) for each in _blocks(content))
    return {"role": "tool", "tool_call_id": str(block.get("tool_use_id") or ""), "content": str(content or "")}


def _blocks(content: object) -> list[Message]:
    if content is None:
        return []
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise InvalidPrompt("`content` must be a text or a list of blocks")
    return content


def _text(block: Message) -> str:
    text = block.get("text")
    if text is not None and not isinstance(text, str):
        raise InvalidPrompt("the text of a block must be a string")
    return text or ""


def _strange(block: Message) -> Uncountable:
    kind = block.get("type")
    if kind in _MEDIA:
        return Uncountable(
            f"the request has {'an image' if kind == 'image' else 'a document'}, and only an engine knows its tokens"
        )
    return Uncountable(f"the request has a block of type {kind!r}, which only an engine can turn into tokens")
