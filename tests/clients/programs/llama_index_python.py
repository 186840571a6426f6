"""LlamaIndex: chat, through its OpenAI-like model."""

from pathlib import Path
from typing import Any

import note
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

model: Any = OpenAILike(
    model=note.MODEL, api_base=note.BASE, api_key=note.KEY, is_chat_model=True,
    is_function_calling_model=True, timeout=1800,
)  # fmt: skip


def read_note(path: str) -> str:
    return Path(path).read_text()


turns = [ChatMessage(role="user", content=note.ASK)]
if note.ACT == "whole":
    print(model.chat(turns).message.content)
elif note.ACT == "tools":
    tool = FunctionTool.from_defaults(read_note)
    answer = model.chat_with_tools([tool], chat_history=turns)
    for call in model.get_tool_calls_from_response(answer):
        said = {"tool_call_id": call.tool_id}
        turns += [
            answer.message,
            ChatMessage(role="tool", content=read_note(**call.tool_kwargs), additional_kwargs=said),
        ]
    print("".join(part.delta or "" for part in model.stream_chat_with_tools([tool], chat_history=turns)))
else:
    print("".join(part.delta or "" for part in model.stream_chat(turns)))
