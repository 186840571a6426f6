"""Translates the messages of Anthropic's protocol into those that chat templates take.

Owns: the translation as vLLM 0.32 does it, as each choice changes the count: which texts are joined with what, and
when a tool's result becomes a message of its own. `tests/real` compares it with the engine.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sparkdash.gateway.count.messages import InvalidPrompt, Uncountable

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
    given = body.get("messages")
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise InvalidPrompt("`messages` must be a list of objects")
    system = [*_system(body.get("system"))]
    if system_first:
        system += [text for each in given if each.get("role") == "system" if (text := _one(each.get("content")))]
    made: list[Message] = [{"role": "system", "content": "".join(system)}] if system else []
    for each in given:
        match each.get("role"):
            case "system":
                if not system_first and (text := _one(each.get("content"))):
                    made.append({"role": "system", "content": text})
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
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise InvalidPrompt("`tools` must be a list of objects")
    return [_tool(each) for each in given]


def reasoning_effort(body: Message) -> str | None:
    """Return the requested reasoning effort; `none` when thinking is switched off."""
    thinking, config = body.get("thinking"), body.get("output_config")
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        return "none"
    asked_effort = config.get("effort") if isinstance(config, dict) else None
    if asked_effort is not None and asked_effort not in EFFORTS:
        raise InvalidPrompt(f"output_config.effort must be one of {', '.join(EFFORTS)}")
    return asked_effort


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


def _system(content: object) -> Iterator[str]:
    """Yield the texts of a system message, without Claude Code's line."""
    if isinstance(content, str):
        if text := _unbilled(content):
            yield text
        return
    for block in _blocks(content):
        if block.get("type") != "text":
            raise _strange(block)
        if (text := _text(block)) and not text.startswith(BILLING):
            yield text


def _unbilled(text: str) -> str:
    return text.partition("\n")[2] if text.startswith(BILLING) else text


def _one(content: object) -> str:
    if isinstance(content, str):
        return "" if content.startswith(BILLING) else content
    return "".join(_system(content))


def _turn(role: str, content: object) -> list[Message]:
    """Translate a turn, after the tool results that came with it."""
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    results: list[Message] = []
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Message] = []
    for block in _blocks(content):
        match block.get("type"), role:
            case "text", _:
                texts += [text] if (text := _text(block)) else []
            case "thinking", _:
                thoughts.append(str(block.get("thinking") or ""))
            case "redacted_thinking", _:
                pass  # sealed: only the cloud reads it
            case "tool_use", _:
                calls.append(_call(block))
            case "tool_result", "user":
                results.append(_result(block))
            case _:
                raise _strange(block)
    turn: Message = {"role": role}
    turn |= {"reasoning": "".join(thoughts)} if thoughts else {}
    turn |= {"tool_calls": calls} if calls else {}
    turn |= {"content": texts[0] if len(texts) == 1 else texts} if texts else {}
    return results if role == "user" and "content" not in turn else [*results, turn]


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
