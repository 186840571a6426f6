"""Generation protocols of the simulated engine, by route.

Owns: which functions parse and shape each protocol. Must not know: the engine's scheduling.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sparkdash.sim.api import anthropic_messages, openai_chat, openai_responses, prompt
from sparkdash.sim.api.answer import GeneratedAnswer


@dataclass(frozen=True, slots=True)
class GenerationRoute:
    """Functions of a generation protocol: parse the body, stream events, build the whole body."""

    read: Callable[[Mapping[str, Any]], prompt.GenerationRequest]
    stream: Callable[[GeneratedAnswer, Mapping[str, Any]], AsyncIterator[bytes]]
    whole: Callable[[GeneratedAnswer], bytes]


PROTOCOLS = {
    "/v1/chat/completions": GenerationRoute(prompt.parse_chat, openai_chat.chat_stream, openai_chat.chat_body),
    "/v1/completions": GenerationRoute(
        prompt.parse_completion, openai_chat.completion_stream, openai_chat.completion_body
    ),
    "/v1/responses": GenerationRoute(
        prompt.parse_response, openai_responses.response_stream, openai_responses.response_body
    ),
    "/v1/messages": GenerationRoute(
        prompt.parse_message, anthropic_messages.message_stream, anthropic_messages.message_body
    ),
}


NEWER = ("/v1/responses", "/v1/messages", "/v1/messages/count_tokens")
"""Routes that engines learned after chat completions."""
