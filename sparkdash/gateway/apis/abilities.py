"""Abilities: what a profile's engine can be asked for beyond text, as far as its command line says it. Pure.

Clients of Ollama and of llama.cpp ask before they offer their tools, and leave them out of the request where nobody says yes.
"""

from __future__ import annotations

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.launch import argv

_TOLD_TOOLS = {EngineKind.VLLM: "enable-auto-tool-choice", EngineKind.SGLANG: "tool-call-parser"}


def takes_tools(profile: Profile) -> bool:
    """vLLM and SGLang read tool calls only when they are told how."""
    wanted = _TOLD_TOOLS.get(profile.engine)
    return wanted is None or bool(argv.lookup(profile.args, wanted))


def thinks(profile: Profile) -> bool:
    """Is its reasoning told apart from its answer?"""
    return bool(argv.lookup(profile.args, "reasoning-parser"))
