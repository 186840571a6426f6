"""openai-python: chat, then responses."""

from typing import Any

import note
import openai

FUNCTION = {**note.FUNCTION, "strict": True}


def main() -> None:
    with openai.OpenAI(base_url=note.BASE, api_key=note.KEY) as client:
        chat(client, [{"role": "user", "content": note.ASK}])
        respond(client, [{"role": "user", "content": note.ASK}])


def chat(client: openai.OpenAI, turns: list[Any]) -> None:
    said: Any = {"model": note.MODEL, "messages": turns}
    if note.ACT == "whole":
        print(client.chat.completions.create(**said).choices[0].message.content)
        return
    if note.ACT == "tools":
        said["tools"] = [{"type": "function", "function": FUNCTION}]
    with client.chat.completions.stream(**said) as stream:
        message = stream.get_final_completion().choices[0].message
    print(message.content)
    if message.tool_calls:
        turns.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            result = note.read(call.function.arguments)
            turns.append({"role": "tool", "tool_call_id": call.id, "content": result})
        chat(client, turns)


def respond(client: openai.OpenAI, items: list[Any]) -> None:
    said: Any = {"model": note.MODEL, "input": items}
    if note.ACT == "whole":
        print(client.responses.create(**said).output_text)
        return
    if note.ACT == "tools":
        said["tools"] = [{"type": "function", **FUNCTION}]
    with client.responses.stream(**said) as stream:
        response = stream.get_final_response()
    print(response.output_text)
    calls = [item for item in response.output if item.type == "function_call"]
    for call in calls:
        items.append(call.model_dump(exclude={"parsed_arguments"}))
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": note.read(call.arguments)})
    if calls:
        respond(client, items)


main()
