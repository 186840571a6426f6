"""Chat completions as bytes, for engines whose answers a test writes."""

import json
from typing import Any

DONE = b"data: [DONE]\n\n"


def event(body: dict[str, Any]) -> bytes:
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", **body}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def delta(said: dict[str, Any], finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "delta": said, "finish_reason": finish}]})


def counts(prompt: int, completion: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})


def whole(said: dict[str, Any], finish: str = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": finish}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], **more}
    return json.dumps(answer).encode()
