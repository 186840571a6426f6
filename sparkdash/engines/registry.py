"""Dialects by engine kind. The one module that knows them all.

Pure.
"""

from __future__ import annotations

from sparkdash.domain.profile import EngineKind
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.engines.dialects.llamacpp import LlamaCpp
from sparkdash.engines.dialects.openai import OpenAI
from sparkdash.engines.dialects.remote import Remote
from sparkdash.engines.dialects.sglang import Sglang
from sparkdash.engines.dialects.sim import Sim
from sparkdash.engines.dialects.trtllm import TrtLlm
from sparkdash.engines.dialects.vllm import Vllm

_ADAPTERS: dict[EngineKind, EngineAdapter] = {
    EngineKind.VLLM: Vllm(),
    EngineKind.SGLANG: Sglang(),
    EngineKind.LLAMACPP: LlamaCpp(),
    EngineKind.TRTLLM: TrtLlm(),
    EngineKind.OPENAI: OpenAI(),
    EngineKind.REMOTE: Remote(),
    EngineKind.SIM: Sim(),
}


def adapter(kind: EngineKind) -> EngineAdapter:
    """Return the stateless adapter of an engine kind."""
    return _ADAPTERS[kind]
