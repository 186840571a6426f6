"""Prompt rendering of an engine, as far as the profile determines it.

Owns: the engine kinds that render prompts with their model's own template, and the flags that change it.
Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sparkdash.domain.profile import ArgValue, EngineKind, Profile
from sparkdash.engines.launch.argv import lookup

_ELSEWHERE = ("tokenizer", "tokenizer-mode", "tokenizer-revision", "exclude-tools-when-tool-choice-none")
"""vLLM flags that render prompts differently from the model's own files, unless set to `auto` or `hf`."""


class Prompting(NamedTuple):
    """Deviations of a profile from its model's own prompt rendering."""

    template: str | None = None
    """Another chat template: its path as the engine sees it, or the template itself."""
    words: Mapping[str, Any] = {}
    """Variables given to the template with every request."""
    in_parts: bool | None = None
    """Whether messages reach the template as lists of parts; None: as the template itself iterates them."""


def prompting(profile: Profile) -> Prompting | str:
    """Describe how this profile's engine renders prompts; where unknown, the reason as the end of a sentence."""
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
