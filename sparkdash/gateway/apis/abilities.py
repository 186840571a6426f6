"""Abilities of a profile beyond plain text, as far as its command line tells.

Clients of Ollama and of llama.cpp ask for them, and leave their tools out of a request unless the answer is yes.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines import argv

_TOLD_TOOLS = {EngineKind.VLLM: "enable-auto-tool-choice", EngineKind.SGLANG: "tool-call-parser"}


def takes_tools(profile: Profile) -> bool:
    """Whether the engine reads tool calls; vLLM and SGLang do so only with a flag."""
    wanted = _TOLD_TOOLS.get(profile.engine)
    return wanted is None or bool(argv.lookup(profile.args, wanted))


def thinks(profile: Profile) -> bool:
    """Whether the engine separates reasoning from the answer."""
    return bool(argv.lookup(profile.args, "reasoning-parser"))
