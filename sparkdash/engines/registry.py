"""Dialects by engine kind. The one module that knows them all.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.engines.generic.engine import Generic
from sparkdash.engines.generic.known_servers import server_of
from sparkdash.engines.llamacpp.engine import LlamaCpp
from sparkdash.engines.openai import OpenAI
from sparkdash.engines.remote import Remote
from sparkdash.engines.sglang.engine import Sglang
from sparkdash.engines.sim import Sim
from sparkdash.engines.trtllm.engine import TrtLlm
from sparkdash.engines.vllm.engine import Vllm

_ADAPTERS: dict[EngineKind, EngineAdapter] = {
    EngineKind.VLLM: Vllm(),
    EngineKind.SGLANG: Sglang(),
    EngineKind.LLAMACPP: LlamaCpp(),
    EngineKind.TRTLLM: TrtLlm(),
    EngineKind.GENERIC: Generic(),
    EngineKind.OPENAI: OpenAI(),
    EngineKind.REMOTE: Remote(),
    EngineKind.SIM: Sim(),
}


def adapter(kind: EngineKind) -> EngineAdapter:
    """Return the stateless adapter of an engine kind; of `generic` one that knows no profile."""
    return _ADAPTERS[kind]


def adapter_of(profile: Profile) -> EngineAdapter:
    """Return the adapter of a profile's engine."""
    return Generic(server_of(profile)) if profile.engine is EngineKind.GENERIC else _ADAPTERS[profile.engine]
