"""litellm's client: chat."""

import os
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # read when it is imported; otherwise it calls home

import litellm
import note


def chat(turns: list[Any]) -> None:
    said: Any = {"model": f"hosted_vllm/{note.MODEL}", "messages": turns, "api_base": note.BASE, "api_key": note.KEY}
    if note.ACT == "tools":
        said["tools"] = [{"type": "function", "function": note.FUNCTION}]
    if note.ACT == "whole":
        answer: Any = litellm.completion(**said)
    else:
        answer = litellm.stream_chunk_builder(list(litellm.completion(**said, stream=True)))
    message = answer.choices[0].message
    print(message.content)
    if message.tool_calls:
        turns.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            turns.append({"role": "tool", "tool_call_id": call.id, "content": note.read(call.function.arguments)})
        chat(turns)


chat([{"role": "user", "content": note.ASK}])
