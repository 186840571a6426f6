"""Translates a chat between Ollama's format and OpenAI's: the request one way, the answer back.

Keys without a counterpart are left out both ways (`num_ctx`, `template`, a `keep_alive` but 0: profiles decide those).
Source of the shapes: Ollama's docs/api.md and its Python client 0.6. Pure.
"""

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sparkdash.errors import AdmissionError
from sparkdash.gateway.protocol.problems import encode_json
from sparkdash.gateway.translate.answers import ChatAnswer, Item
from sparkdash.gateway.translate.requests import ChatRequest

_OPTIONS = (
    "temperature", "top_p", "top_k", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty",
)  # fmt: skip
"""Options that have the same name in OpenAI's protocol."""
_IMAGES = {"/9j/": "jpeg", "iVBOR": "png", "R0lGOD": "gif", "UklGR": "webp"}
"""Prefixes of base64 by image kind: Ollama sends pictures without their type."""
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True, slots=True)
class OllamaRequest:
    """Parsed request of Ollama's."""

    model: str
    path: str
    body: dict[str, Any]
    """Request in OpenAI's format; `model` is still the client's."""
    generate: bool
    """Whether this is /api/generate, whose text is called `response` and stands beside the other keys."""
    empty: bool
    """Whether there is nothing to answer: the client only wants the model loaded, or unloaded."""
    unload: bool
    """Whether the model is to be unloaded, after the answer if there is one."""


def parse_ollama_request(body: Mapping[str, Any], *, generate: bool) -> OllamaRequest:
    """Parse a request of /api/chat or /api/generate. Raises AdmissionError: a wrong type, or not possible here."""
    model = model_of(body)
    stream = body.get("stream") is not False
    path, request = CHAT, dict[str, Any]()
    if generate:
        path, request = _prompted(body)
    else:
        request["messages"] = list(_messages(_list(body, "messages")))
    empty = not (request.get("messages") or request.get("prompt"))
    if path == CHAT and body.get("tools"):
        request["tools"] = _list(body, "tools")
    request |= _options(body.get("options")) | _format(body.get("format")) | _think(body.get("think"))
    if body.get("logprobs"):
        request |= {"logprobs": True, "top_logprobs": body.get("top_logprobs") or 0}
    request["stream"] = stream
    if stream:
        request["stream_options"] = {"include_usage": True}
    return OllamaRequest(model, path, request, generate, empty, unload=is_unloading(body))


def is_unloading(body: Mapping[str, Any]) -> bool:
    return body.get("keep_alive") in (0, "0", "0s", "0m")


def too_deep() -> AdmissionError:
    return AdmissionError("The request's body is nested too deeply.", code="invalid_json")


def model_of(body: Mapping[str, Any]) -> str:
    """Return the model that a request names. Raises AdmissionError without one."""
    model = body.get("model") or body.get("name")
    if not isinstance(model, str) or not model:
        raise AdmissionError("The request names no model.", code="model_missing", hint="GET /api/tags lists them.")
    return model


def _prompted(body: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if body.get("context"):
        raise AdmissionError(
            "`context` of an earlier answer is not kept here.", code="context_not_kept", hint="Use /api/chat."
        )
    prompt = body.get("prompt") or ""
    if body.get("raw") or body.get("suffix"):
        suffix = {"suffix": body["suffix"]} if body.get("suffix") else {}
        return COMPLETIONS, {"prompt": prompt, **suffix}
    system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
    user = [{"role": "user", "content": prompt, "images": body.get("images")}] if prompt else []
    return CHAT, {"messages": list(_messages([*system, *user])) if user else []}


def _messages(messages: list[Any]) -> Iterator[dict[str, Any]]:
    """Translate messages. Ollama's tool calls have no ids, OpenAI's must.

    An answer belongs to the oldest call of its name that has none yet.
    """
    unanswered, order = defaultdict[str, deque[str]](deque), deque[str]()
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise AdmissionError(f"messages[{number}] is not an object.", code="invalid_json")
        made = {"role": message.get("role", "user"), "content": _content(message)}
        if calls := _list(message, "tool_calls"):
            made["tool_calls"] = [_call_there(call, f"call_{number}_{i}") for i, call in enumerate(calls)]
            for call in made["tool_calls"]:
                order.append(call["function"]["name"])
                unanswered[order[-1]].append(call["id"])
        if made["role"] == "tool":
            name = message.get("tool_name") or message.get("name")
            made["tool_call_id"] = message.get("tool_call_id") or _answered(name, unanswered, order)
        yield made


def _content(message: Mapping[str, Any]) -> Any:
    text, images = message.get("content") or "", _list(message, "images")
    if not images:
        return text
    parts = [{"type": "image_url", "image_url": {"url": _data_url(str(image))}} for image in images]
    return [{"type": "text", "text": text}, *parts] if text else parts


def _data_url(image: str) -> str:
    if image.startswith("data:"):
        return image
    kind = next((kind for head, kind in _IMAGES.items() if image.startswith(head)), "png")
    return f"data:image/{kind};base64,{image}"


def _call_there(call: Any, made_up: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise AdmissionError("A tool call in the messages has no function.", code="invalid_json")
    arguments = function.get("arguments") or {}
    try:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    except RecursionError:
        raise too_deep() from None
    return {
        "id": call.get("id") or made_up,
        "type": "function",
        "function": {"name": function["name"], "arguments": text},
    }


def _answered(name: Any, calls: Mapping[str, deque[str]], order: deque[str]) -> str:
    """Take the oldest call of that name; of an answer without a name the next one, as older clients write them."""
    while name is None and order:
        first = order.popleft()
        name = first if calls[first] else None
    found = calls.get(name) if isinstance(name, str) else None
    return found.popleft() if found else "call_unknown"  # the template decides about an answer without a call


def _options(options: Any) -> dict[str, Any]:
    if not isinstance(options, Mapping):
        return {}
    made = {name: options[name] for name in _OPTIONS if options.get(name) is not None}
    limit = options.get("num_predict")
    if isinstance(limit, int) and limit > 0:  # -1 and -2 mean no limit
        made["max_tokens"] = limit
    return made


def _format(wanted: Any) -> dict[str, Any]:
    if wanted == "json":
        return {"response_format": {"type": "json_object"}}
    if isinstance(wanted, Mapping):
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": dict(wanted)}}}
    return {}


def _think(think: Any) -> dict[str, Any]:
    """Translate `think`: templates know `enable_thinking`, gpt-oss an effort."""
    if isinstance(think, bool):
        return {"chat_template_kwargs": {"enable_thinking": think}}
    return {"reasoning_effort": think} if isinstance(think, str) and think else {}


def _list(body: Mapping[str, Any], key: str) -> list[Any]:
    value = body.get(key) or []
    if not isinstance(value, list):
        raise AdmissionError(f"`{key}` is not an array.", code="invalid_json")
    return value


# --- the answer -------------------------------------------------------------------------------------------------


Dressed = Callable[[Mapping[str, Any]], dict[str, Any]]


class OllamaAnswer(ChatAnswer):
    """Writes Ollama's lines, or its answer in one piece. `said` and `final` complete a message and the last one."""

    def __init__(self, said: Dressed, final: Dressed) -> None:
        super().__init__({}, ChatRequest())
        self._said = said
        self._final = final

    def _say(self, said: dict[str, Any]) -> Iterator[bytes]:
        """Yield an empty line for a chunk without text, such as a keep-alive."""
        yield b"".join(super()._say(said)) or self._line({"content": ""})

    def _grow(self, item: Item, piece: str) -> Iterator[bytes]:
        if item.kind == "text":
            yield self._line({"content": piece} | ({"logprobs": self._logprobs} if self._logprobs else {}))
        elif item.kind == "reasoning":
            yield self._line({"content": "", "thinking": piece})

    def _end(self) -> Iterator[bytes]:
        if calls := self._tool_calls():
            yield self._line({"content": "", "tool_calls": calls})
        yield json_line(self._final({"content": ""}))

    def _whole(self) -> dict[str, Any]:
        texts = {
            kind: "".join(item.text for item in self._items if item.kind == kind) for kind in ("text", "reasoning")
        }
        logprobs = [each for item in self._items for each in item.logprobs]
        told = {"thinking": texts["reasoning"], "tool_calls": self._tool_calls(), "logprobs": logprobs}
        return self._final({"content": texts["text"], **{key: value for key, value in told.items() if value}})

    def _line(self, message: Mapping[str, Any]) -> bytes:
        return json_line(self._said(message) | {"done": False})

    def _tool_calls(self) -> list[dict[str, Any]]:
        """List the tool calls. Raises ValueError when the model's arguments are not JSON."""
        calls = [item for item in self._items if item.kind == "call"]
        return [{"function": {"name": call.name, "arguments": json.loads(call.text or "{}")}} for call in calls]

    def counts(self) -> dict[str, Any]:
        """Build the counts: why the answer ended and the engine's token counts, as far as known."""
        found = {
            "done_reason": "length" if self._finish == "length" else "stop",
            "prompt_eval_count": self._usage.get("prompt_tokens"),
            "eval_count": self._usage.get("completion_tokens"),
        }
        return {key: value for key, value in found.items() if value is not None}


def shape_message(message: Mapping[str, Any], *, generate: bool) -> dict[str, Any]:
    """A message as /api/chat has it, or as /api/generate does; log probabilities stand beside it in both."""
    if not generate:
        inner = {key: value for key, value in message.items() if key != "logprobs"}
        beside = {"logprobs": message["logprobs"]} if "logprobs" in message else {}
        return {"message": {"role": "assistant", **inner}, **beside}
    rest = {key: value for key, value in message.items() if key != "content"}
    return {"response": message.get("content", ""), **rest}


def json_line(value: Mapping[str, Any]) -> bytes:
    return encode_json(dict(value)) + b"\n"


def nanoseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e9))


def rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
