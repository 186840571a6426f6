"""langchain-openai: chat, then responses."""

import json
from functools import reduce
from operator import add
from typing import Any

import note
from langchain_openai import ChatOpenAI


def talk(chat: Any, turns: list[Any]) -> None:
    message = chat.invoke(turns) if note.ACT == "whole" else reduce(add, chat.stream(turns))
    print(message.text)
    if message.tool_calls:
        turns.append(message)
        for call in message.tool_calls:
            result = note.read(json.dumps(call["args"]))
            turns.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        talk(chat, turns)


for responses in (False, True):
    model: Any = ChatOpenAI(base_url=note.BASE, model=note.MODEL, api_key=note.KEY, use_responses_api=responses)
    if note.ACT == "tools":
        model = model.bind_tools([note.FUNCTION])
    talk(model, [{"role": "user", "content": note.ASK}])
