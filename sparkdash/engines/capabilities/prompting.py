"""How an engine makes a prompt of a chat, as far as a profile says it. Pure.

Owns: which kinds of engines write prompts by their model's own template, and which of their flags change that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sparkdash.domain.profile import ArgValue, EngineKind, Profile
from sparkdash.engines.launch.argv import lookup

_ELSEWHERE = ("tokenizer", "tokenizer-mode", "tokenizer-revision", "exclude-tools-when-tool-choice-none")
"""Flags of vLLM with which the prompt is not what the model's own files make of it, at their default when they say `auto` or `hf`."""


class Prompting(NamedTuple):
    """What a profile changes of its model's own way."""

    template: str | None = None
    """Another chat template: a file's path as the engine sees it, or the template itself."""
    words: Mapping[str, Any] = {}
    """What the template is told with every request."""
    in_parts: bool | None = None
    """Do messages reach the template as lists of parts? None: as the template itself walks through them."""


def prompting(profile: Profile) -> Prompting | str:
    """How this profile's engine writes prompts; a sentence's end with the reason where that is not known here."""
    if profile.engine is not EngineKind.VLLM:
        return f"how an engine of kind {profile.engine} writes prompts is not known here"
    if changed := next(
        (flag for flag in _ELSEWHERE if lookup(profile.args, flag) not in (None, False, "auto", "hf")), None
    ):
        return f"its profile has --{changed}"
    template, given = lookup(profile.args, "chat-template"), lookup(profile.args, "chat-template-content-format")
    words = _object(lookup(profile.args, "default-chat-template-kwargs"))
    if words is None:
        return "its profile's --default-chat-template-kwargs is no JSON object"
    return Prompting(
        template=None if template is None else str(template),
        words=words,
        in_parts={"openai": True, "string": False}.get(str(given)),
    )


def _object(value: ArgValue) -> dict[str, Any] | None:
    if value is None:
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    return value if isinstance(value, dict) else None
