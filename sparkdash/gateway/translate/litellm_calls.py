"""Calls litellm: a request of one protocol in, the answer of the same protocol out, sent to the engine as a chat.

Loaded in the translator's process only.
Rule: a client's keys never become litellm's own options (`api_base`, `mock_response`, …): keys outside the protocol
go into `extra_body`, which the engine gets unchanged.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from types import ModuleType
from typing import Any

from sparkdash.upstream import engine_error_text

_shim: Any = ModuleType("litellm.proxy.proxy_server")
_shim.llm_router = None
# litellm tries to import its proxy with every call, in vain, and blocks the loop for 100 ms (seen with 1.106, 1.109).
sys.modules["litellm.proxy.proxy_server"] = _shim

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it fetches a price list from the net on import
os.environ["LITELLM_MODE"] = "PRODUCTION"  # otherwise it reads the nearest .env file
import litellm  # noqa: E402 - needs the shim and the variables above

logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)  # its log lines contain prompts
litellm.suppress_debug_info = True
litellm.disable_streaming_logging = True
litellm.drop_params = True

MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
LIMIT_S = 24 * 3600
"""litellm needs a time-out; the length of an answer is not limited here."""

_KNOWN = {
    MESSAGES: frozenset({
        "max_tokens", "messages", "metadata", "output_config", "output_format", "stop_sequences", "system",
        "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p",
    }),
    RESPONSES: frozenset({
        "input", "instructions", "max_output_tokens", "metadata", "parallel_tool_calls", "reasoning", "temperature",
        "text", "tool_choice", "tools", "top_p", "user",
    }),
}  # fmt: skip
_DROPPED = {
    MESSAGES: frozenset({"anthropic_beta", "betas", "container", "context_management", "mcp_servers", "service_tier"}),
    RESPONSES: frozenset({
        "background", "client_metadata", "conversation", "include", "max_tool_calls", "previous_response_id", "prompt",
        "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "store", "stream_options",
        "top_logprobs", "truncation",
    }),
}  # fmt: skip
"""Keys of the protocol without a meaning in a chat."""
_TOOLS = {MESSAGES: frozenset({None, "custom"}), RESPONSES: frozenset({"function", "custom", "namespace"})}
"""Tool types that a chat can have; the others are the provider's own, such as web search."""
_NEEDED = {MESSAGES: ("messages", "max_tokens"), RESPONSES: ("input",)}


class TranslationRefused(Exception):  # noqa: N818 - its text goes to the client
    """The request cannot be translated, or the engine refused it; `status` and words are for the client."""

    def __init__(self, status: int, words: str, code: str = "engine_refused") -> None:
        super().__init__(words)
        self.status = status
        self.code = code


class EngineUnreachable(Exception):  # noqa: N818 - its text goes to the gateway
    """The engine did not answer, or broke off."""


async def ask_as_chat(
    path: str, body: Mapping[str, Any], engine: str, authorization: str | None
) -> bytes | AsyncIterator[bytes]:
    """Ask the engine; return the whole answer, or the frames of a stream whose first frame has come.

    `engine` is its base URL with /v1.

    Raises:
        TranslationRefused, EngineUnreachable: before the first frame. The iterator raises later failures.
    """
    options = _options(path, body, engine, authorization)
    stream = body.get("stream") is True
    try:
        if path == MESSAGES:
            answer: Any = await litellm.anthropic.messages.acreate(stream=stream, **options)
            return _messages(answer) if stream else json.dumps(answer).encode()
        answer = await litellm.aresponses(stream=stream, use_chat_completions_api=True, **options)
        return _responses(answer) if stream else _whole_response(answer)
    except TranslationRefused:
        raise
    except Exception as error:  # noqa: BLE001 - litellm raises dozens of types, and the client must get each
        raise _converted_error(error) from None


def _refuse_unanswerable(path: str, body: Mapping[str, Any]) -> None:
    """Raise TranslationRefused for a body without a required key, and for one that continues a stored response."""
    if missing := [key for key in _NEEDED[path] if body.get(key) is None]:
        raise TranslationRefused(400, f"{missing[0]}: field required", "invalid_request")
    if body.get("previous_response_id"):
        words = (
            "This engine keeps no responses: previous_response_id names none that it has. Send the whole conversation."
        )
        raise TranslationRefused(404, words, "previous_response_not_found")


def _options(path: str, body: Mapping[str, Any], engine: str, authorization: str | None) -> dict[str, Any]:
    _refuse_unanswerable(path, body)
    known, dropped = _KNOWN[path], _DROPPED[path]
    given = {key: value for key, value in body.items() if key in known and value is not None}
    extra = {key: value for key, value in body.items() if key not in known | dropped | {"model", "stream"}}
    if tools := _supported_tools(path, given.pop("tools", None)):
        given["tools"] = tools
    return {
        **given,
        "model": f"hosted_vllm/{body.get('model') or 'default'}",
        "api_base": engine,
        "api_key": (authorization or "").removeprefix("Bearer ")
        or "none",  # litellm requires a key, and overwrites our own header
        "extra_body": extra,
        "timeout": LIMIT_S,
        "max_retries": 0,
        "num_retries": 0,
    }


def _supported_tools(path: str, tools: Any) -> list[Any]:
    """Keep the tools of types that a chat can have."""
    return [tool for tool in tools or () if not isinstance(tool, dict) or tool.get("type") in _TOOLS[path]]


async def _messages(answer: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for frame in answer:
        if frame.startswith(b"event: error"):
            raise _stream_error(json.loads(frame.partition(b"data:")[2])["error"]["message"])
        yield frame


async def _responses(answer: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """Encode the events and number all of them; litellm numbers only some, and clients and splices need every
    number."""
    number = 0
    try:
        async for event in answer:
            answered = _plain(event)
            yield b"event: %b\ndata: %b\n\n" % (
                answered["type"].encode(),
                _json({**answered, "sequence_number": number}),
            )
            number += 1
    except Exception as error:  # noqa: BLE001 - litellm raises dozens of types
        raise _stream_error(str(getattr(error, "message", "") or error)) from None


def _whole_response(answer: Any) -> bytes:
    answered: dict[str, Any] = answer.model_dump(mode="json")
    return _json(_with_engine_model_name(answered))


def _plain(event: Any) -> dict[str, Any]:
    answered: dict[str, Any] = event.model_dump(mode="json", exclude_none=True)
    if "response" in answered:
        answered["response"] = _with_engine_model_name(answered["response"])
    return answered


def _with_engine_model_name(response: dict[str, Any]) -> dict[str, Any]:
    """Put the engine's own model name and the id first, where splices look for it."""
    name = str(response.get("model", "")).removeprefix("hosted_vllm/")
    return {"id": response.get("id"), **response, "model": name}


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


_STATUS = {
    "BadRequestError": 400, "ContextWindowExceededError": 400, "AuthenticationError": 401, "PermissionDeniedError": 403,
    "NotFoundError": 404, "UnprocessableEntityError": 422, "RateLimitError": 429,
}  # fmt: skip
"""Statuses of litellm's errors; any other is an engine's own failure."""


def _stream_error(words: str) -> Exception:
    """Convert litellm's words for an error inside a stream: the engine's own, or its connection's end."""
    if "APIConnectionError" in words:
        return EngineUnreachable("it broke off in the middle of its answer")
    status = next((_STATUS[name] for name in re.findall(r"litellm\.(\w+)", words) if name in _STATUS), 500)
    return TranslationRefused(status, engine_error_text(words.rpartition("Exception - ")[2].encode()))


def _converted_error(error: Exception) -> Exception:
    """Convert litellm's error: the engine's own status and text, without litellm's prefix.

    litellm tells no connection and a 500 alike; only an engine's has a body that is an object.
    """
    words = str(getattr(error, "message", "") or error).rpartition("Exception - ")[2]
    status = getattr(error, "status_code", None)
    if not isinstance(status, int) or status < 400:
        return TranslationRefused(
            500, f"litellm failed on this request ({type(error).__name__}): {words[:300]}", "translation_failed"
        )
    if status >= 500 and not words.startswith("{"):
        return EngineUnreachable(words.partition(" ssl:")[0][:300])
    return TranslationRefused(status, engine_error_text(words.encode()))
