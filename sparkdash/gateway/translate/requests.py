"""Requests of /v1/messages and /v1/responses as chats; keys outside a protocol go on unchanged. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkdash.domain.profile import ApiProtocol
from sparkdash.errors import AdmissionError

Body = dict[str, Any]
TRANSLATED = {"/v1/messages": ApiProtocol.MESSAGES, "/v1/responses": ApiProtocol.RESPONSES}
"""Paths that can be sent as a chat instead."""
CHAT = "/v1/chat/completions"
_WITHOUT_EFFECT = frozenset({
    "metadata", "betas", "anthropic_beta", "service_tier", "store", "include", "client_metadata", "prompt_cache_key",
    "prompt_cache_retention", "safety_identifier", "stream_options",
})  # fmt: skip
"""Keys that change nothing in an answer of an engine of one's own."""
_REFUSED_HERE = frozenset({"container", "mcp_servers", "context_management", "background", "conversation", "prompt"})
"""Keys for what only the providers' own services do."""
_FILES = frozenset({"document", "image", "input_image", "input_file", "input_audio"})
"""Content without which the question is another one."""


@dataclass
class ChatRequest:
    """A request as a chat, and what its answer needs."""

    body: Body = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Keys and content that a chat does not carry, in the client's words."""
    namespaces: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Namespace and name of each tool that came in one, by its name in the chat."""


def as_chat(path: str, asked: Mapping[str, Any]) -> ChatRequest:
    """Translate a request.

    Raises:
        AdmissionError: `invalid_request`: a key is missing, or of another shape; `previous_response_not_found`;
        `not_translatable`: it has content that no chat has.
    """
    made = ChatRequest()
    known, write = (_MESSAGES_KEYS, _write_messages) if path == "/v1/messages" else (_RESPONSES_KEYS, _write_responses)
    given = {key: value for key, value in asked.items() if value is not None}
    try:
        write(given, made)
    except (AttributeError, TypeError, KeyError) as error:
        raise AdmissionError(f"The request is not of {path}: {error}.", code="invalid_request") from None
    made.body |= {key: value for key, value in given.items() if key not in known | _WITHOUT_EFFECT | _REFUSED_HERE}
    made.left_out += sorted(key for key in given.keys() & _REFUSED_HERE if given[key])
    if made.body.get("stream"):
        made.body["stream_options"] = {"include_usage": True}
    return made


_MESSAGES_KEYS = frozenset({
    "max_tokens", "messages", "system", "stop_sequences", "thinking", "output_config", "output_format", "tools",
    "tool_choice",
})  # fmt: skip
_TOOL_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def _write_messages(asked: Body, made: ChatRequest) -> None:
    system = _text_of(asked.get("system", ""), made)
    turns = [message for turn in _needed(asked, "messages") for message in _messages_turn(turn, made)]
    made.body = {"max_tokens": _needed(asked, "max_tokens"), "messages": [*_system(system), *turns]}
    if stop := asked.get("stop_sequences"):
        made.body["stop"] = stop
    _write_thinking(asked, made)
    tools = [tool for tool in map(_messages_tool, asked.get("tools", ())) if _kept(tool, made)]
    if tools:
        made.body["tools"] = [_function(tool) for tool in tools]
    if choice := asked.get("tool_choice"):
        named = {"type": "function", "function": {"name": choice.get("name")}}
        made.body["tool_choice"] = _TOOL_CHOICES.get(choice["type"], named)
        if choice.get("disable_parallel_tool_use"):
            made.body["parallel_tool_calls"] = False


def _write_thinking(asked: Body, made: ChatRequest) -> None:
    thinking, config = asked.get("thinking", {}), asked.get("output_config", {})
    if thinking.get("type") == "disabled":
        made.body["reasoning_effort"] = "none"
    elif "effort" in config:
        made.body["reasoning_effort"] = config["effort"]
    if "budget_tokens" in thinking:
        made.left_out.append("thinking.budget_tokens")
    if form := config.get("format") or asked.get("output_format"):
        schema = {"name": "answer", "schema": form.get("schema"), "strict": True}
        made.body["response_format"] = {"type": "json_schema", "json_schema": schema}


def _messages_turn(turn: Body, made: ChatRequest) -> Iterator[Body]:
    """Yield the messages of a turn: the results of tools come first, each as a message of its own."""
    role, content = turn["role"], turn.get("content", "")
    if isinstance(content, str):
        yield {"role": role, "content": content}
        return
    parts, message = [], {"role": role, "content": None}
    for block in content:
        match block["type"]:
            case "tool_result":
                result, pictures = _result(block.get("content", ""), made)
                yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": result}
                parts += pictures
            case "tool_use":
                arguments = json.dumps(block.get("input", {}), ensure_ascii=False)
                message.setdefault("tool_calls", []).append(_call(block["id"], block["name"], arguments))
            case "thinking":
                message["reasoning_content"] = message.get("reasoning_content", "") + block.get("thinking", "")
            case _:
                parts += _part(block, made)
    if parts or len(message) > 2:
        yield _with_thoughts(message | ({"content": _simple(parts)} if parts else {}))


_RESPONSES_KEYS = frozenset({
    "input", "instructions", "max_output_tokens", "parallel_tool_calls", "previous_response_id", "reasoning", "text",
    "tool_choice", "tools", "top_logprobs", "truncation", "max_tool_calls",
})  # fmt: skip


def _write_responses(asked: Body, made: ChatRequest) -> None:
    if asked.get("previous_response_id"):
        raise AdmissionError(
            "This engine keeps no responses: previous_response_id names none that it has. Send the whole conversation.",
            code="previous_response_not_found",
            status=404,
        )
    given = _needed(asked, "input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    made.body = {"messages": [*_system(asked.get("instructions", "")), *_conversation(items, made)]}
    _write_responses_options(asked, made)
    tools = [tool for tool in _flat(asked.get("tools", ()), made) if _kept(tool, made)]
    if tools:
        made.body["tools"] = [_function(tool) for tool in tools]
    choice = asked.get("tool_choice")
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        made.body["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    elif isinstance(choice, str):
        made.body["tool_choice"] = choice
    elif choice:
        made.left_out.append(f"tool_choice {choice['type']}")


def _write_responses_options(asked: Body, made: ChatRequest) -> None:
    named = {"max_output_tokens": "max_tokens", "parallel_tool_calls": "parallel_tool_calls"}
    made.body |= {name: asked[key] for key, name in named.items() if key in asked}
    if effort := asked.get("reasoning", {}).get("effort"):
        made.body["reasoning_effort"] = effort
    logprobs = "message.output_text.logprobs" in asked.get("include", ())
    if logprobs or asked.get("top_logprobs"):
        made.body |= {"logprobs": True, "top_logprobs": asked.get("top_logprobs", 0)}
    text = asked.get("text", {})
    match text.get("format", {}):
        case {"type": "json_schema", **schema}:
            made.body["response_format"] = {"type": "json_schema", "json_schema": schema}
        case {"type": "json_object"}:
            made.body["response_format"] = {"type": "json_object"}
    made.left_out += [key for key in ("max_tool_calls",) if key in asked]
    made.left_out += ["truncation"] if asked.get("truncation", "disabled") != "disabled" else []
    made.left_out += ["text.verbosity"] if "verbosity" in text else []


def _conversation(items: Iterable[Body], made: ChatRequest) -> Iterator[Body]:
    """Yield the messages of a conversation.

    What the assistant thought, said and called beside each other is one message. Pictures come after the results.
    """
    answer, pictures = _Answer(), list[Body]()
    for item in items:
        if (piece := _assistants(item, made)) is None or ("content" in piece and answer.has_spoken):
            yield from answer.taken()
        if item.get("type") != _OUTPUT and pictures:
            yield {"role": "user", "content": pictures}
            pictures = []
        if piece is not None:
            answer.add(piece)
        elif item.get("type") == _OUTPUT:
            result, more = _result(item.get("output", ""), made)
            yield {"role": "tool", "tool_call_id": item["call_id"], "content": result}
            pictures += more
        else:
            yield from _message(item, made)
    yield from answer.taken()
    if pictures:
        yield {"role": "user", "content": pictures}


_OUTPUT = "function_call_output"


class _Answer:
    """The assistant's message that is being put together."""

    def __init__(self) -> None:
        self._made: Body = {}

    @property
    def has_spoken(self) -> bool:
        return "content" in self._made or "tool_calls" in self._made

    def add(self, piece: Body) -> None:
        for key, more in piece.items():
            self._made[key] = self._made[key] + more if key in self._made else more

    def taken(self) -> Iterator[Body]:
        made, self._made = self._made, {}
        if made:
            yield _with_thoughts({"role": "assistant", "content": None, **made})


def _with_thoughts(message: Body) -> Body:
    """Give thoughts both of their names: vLLM reads `reasoning`, the others the longer one."""
    return message | ({"reasoning": message["reasoning_content"]} if "reasoning_content" in message else {})


def _assistants(item: Body, made: ChatRequest) -> Body | None:
    """Return what an item adds to the assistant's message; None for an item of somebody else."""
    match item.get("type", "message"):
        case "message" if item["role"] == "assistant":
            return {"content": _simple(_parts(item.get("content", ""), made))}
        case "reasoning":
            parts = item.get("content") or item.get("summary") or ()
            if not parts and item.get("encrypted_content"):
                made.left_out.append("encrypted reasoning")
            return {"reasoning_content": "".join(part.get("text", "") for part in parts)}
        case "function_call":
            name = f"{item['namespace']}__{item['name']}" if item.get("namespace") else item["name"]
            return {"tool_calls": [_call(item["call_id"], name, item.get("arguments", "{}"))]}
    return None


def _message(item: Body, made: ChatRequest) -> Iterator[Body]:
    if item.get("type", "message") != "message":
        made.left_out.append(f"input {item['type']}")
        return
    role = "system" if item["role"] == "developer" else item["role"]
    yield {"role": role, "content": _simple(_parts(item.get("content", ""), made))}


def _flat(tools: Iterable[Body], made: ChatRequest) -> Iterator[Body]:
    """Yield the tools, those of a namespace under a longer name."""
    for tool in tools:
        if tool.get("type") == "namespace":
            for inner in tool.get("tools", ()):
                name = f"{tool['name']}__{inner['name']}"
                made.namespaces[name] = (tool["name"], inner["name"])
                yield inner | {"name": name}
        else:
            yield tool


def _messages_tool(tool: Body) -> Body:
    kind = tool.get("type") or "custom"
    return {**tool, "parameters": tool.get("input_schema"), "type": "function" if kind == "custom" else kind}


def _kept(tool: Body, made: ChatRequest) -> bool:
    """Whether a chat can have the tool; the others are the provider's own, such as web search."""
    if tool.get("type") != "function":
        made.left_out.append(f"tool {tool.get('type')}")
    return tool.get("type") == "function"


def _function(tool: Body) -> Body:
    keys = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {key: tool[key] for key in keys if tool.get(key) is not None}}


def _call(call_id: str, name: str, arguments: str) -> Body:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _result(content: Any, made: ChatRequest) -> tuple[str, list[Body]]:
    """Return the text of a tool's result, and its pictures, which a tool's message in a chat cannot have."""
    parts = _parts(content, made)
    texts = [part["text"] for part in parts if part["type"] == "text"]
    return "\n".join(texts), [part for part in parts if part["type"] != "text"]


def _parts(content: Any, made: ChatRequest) -> list[Body]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [part for block in blocks for part in _part(block, made)]


def _part(block: Body, made: ChatRequest) -> list[Body]:
    match block:
        case {"type": "text" | "input_text" | "output_text", "text": str(text)} | {"type": "refusal", "refusal": text}:
            return [{"type": "text", "text": text}]
        case {"type": "image", "source": source}:
            url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
            return [{"type": "image_url", "image_url": {"url": url}}]
        case {"type": "input_image", "image_url": str(url)}:
            detail = {"detail": block["detail"]} if "detail" in block else {}
            return [{"type": "image_url", "image_url": {"url": url, **detail}}]
        case {"type": "document", "source": {"type": "text", "data": text}}:
            return [{"type": "text", "text": text}]
    kind = str(block.get("type"))
    if kind in _FILES:
        raise AdmissionError(
            f"This engine speaks chat completions, and no content of the type {kind!r} can be sent to it.",
            code="not_translatable",
            hint="Send it as text, or a picture as a URL or in base64.",
        )
    made.left_out.append(f"content {kind}")
    return []


def _text_of(content: Any, made: ChatRequest) -> str:
    return _result(content, made)[0]


def _system(text: str) -> list[Body]:
    return [{"role": "system", "content": text}] if text else []


def _simple(parts: list[Body]) -> Any:
    """Return a lone text as a text, which every engine takes."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _needed(asked: Body, key: str) -> Any:
    if key not in asked:
        raise AdmissionError(f"{key}: field required.", code="invalid_request")
    return asked[key]
