"""Counts tokens from files alone. Loaded in the counter's process only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparkdash.catalog.checkpoint.weights import locate_checkpoint
from sparkdash.domain.profile import ModelRef
from sparkdash.errors import ProfileError
from sparkdash.gateway.count import chat
from sparkdash.gateway.count.messages import CountRequest, InvalidPrompt, Uncountable
from sparkdash.gateway.count.model import PromptModel, read_prompt_model
from sparkdash.gateway.count.template import Template


def count_tokens(order: CountRequest, body: dict[str, Any]) -> int:
    """Count the prompt's tokens as the engine would.

    Raises:
        Uncountable: only the engine can.
        Refused: no engine would take it.
    """
    model = read_prompt_model(_folder(order))
    tools = chat.chat_tools(body)
    template = model.template(tools=tools is not None) if order.template is None else _given(order, model)
    messages = chat.chat_messages(body, system_first=template.system_first)
    return model.count(template.prompt(messages, tools, _words(order, body, template), in_parts=order.in_parts))


def _folder(order: CountRequest) -> Path:
    try:
        found = locate_checkpoint(order.model, Path(order.hf_home), order.mounts)
    except ProfileError as error:
        raise Uncountable(error.text()) from None
    if not found.is_dir():
        raise Uncountable(f"{found.name} is one file, and the tokenizer inside is not read")
    return found


def _given(order: CountRequest, model: PromptModel) -> Template:
    source = order.template or ""
    if "{%" in source or "{{" in source:
        return model.written(source)
    try:
        return model.written(
            locate_checkpoint(ModelRef(path=source), Path(order.hf_home), order.mounts).read_text("utf-8")
        )
    except (ProfileError, OSError):
        raise Uncountable(f"its chat template {source} is not on this box") from None


def _words(order: CountRequest, body: dict[str, Any], template: Template) -> dict[str, Any]:
    """Collect the template's variables: the profile's, the client's, and the reasoning effort."""
    own = body.get("chat_template_kwargs") or {}
    if not isinstance(own, dict):
        raise InvalidPrompt("chat_template_kwargs must be an object")
    effort = chat.reasoning_effort(body)
    if effort == "none" and not _can_be_off(template, order.in_parts):
        effort = "low"
    return {**order.words, **own, **_thinking(effort, switched="enable_thinking" in own)}


def _thinking(effort: str | None, *, switched: bool = False) -> dict[str, Any]:
    if effort is None:
        return {}
    return {"reasoning_effort": effort} | ({} if switched else {"enable_thinking": effort != "none"})


def _can_be_off(template: Template, in_parts: bool | None) -> bool:
    """Whether switching thinking off changes the prompt; it does not in a template that ignores the word."""
    probe = [{"role": "user", "content": "Hi"}]

    def prompt(effort: str) -> str | None:
        try:
            return template.prompt(probe, None, _thinking(effort), in_parts=in_parts)
        except InvalidPrompt:
            return None

    off = prompt("none")
    return off is not None and all(prompt(effort) != off for effort in chat.EFFORTS)
