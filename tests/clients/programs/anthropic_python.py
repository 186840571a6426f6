"""anthropic-python: messages."""

import json
from typing import Any

import anthropic
import note

TOOL: Any = {"name": "read_note", "description": "Reads a note.", "input_schema": note.SCHEMA}


def main() -> None:
    with anthropic.Anthropic(base_url=note.BASE.removesuffix("/v1"), api_key=note.KEY) as client:
        speak(client, [{"role": "user", "content": note.ASK}])


def speak(client: anthropic.Anthropic, turns: list[Any]) -> None:
    said: Any = {"model": note.MODEL, "messages": turns, "max_tokens": 20_000}
    if note.ACT == "tools":
        said["tools"] = [TOOL]
    if note.ACT == "whole":
        message = client.messages.create(**said | {"max_tokens": 500})
    else:
        with client.messages.stream(**said) as stream:
            message = stream.get_final_message()
    print("".join(block.text for block in message.content if block.type == "text"))
    calls = [block for block in message.content if block.type == "tool_use"]
    if calls:
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": note.read(json.dumps(call.input))}
            for call in calls
        ]
        turns += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
        speak(client, turns)


main()
