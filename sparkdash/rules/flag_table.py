"""Rules by the flag tables of the engines: unknown flags, values that the parser refuses, flags given twice.

An error where the engine is sure to refuse the line; a warning where the version is not named or the image is a fork.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.dialects import vllm_flags
from sparkdash.engines.flags.judge import FlagFault, flag_complaints
from sparkdash.rules.rule import Hit, Rule, Severity

EVIDENCE = (
    "read in the sources of vLLM 0.11 to 0.32, SGLang 0.5.3 to 0.5.23, llama.cpp b5640 to v0.5.0, TensorRT-LLM 1.3"
)
UNKNOWN = "unknown-flag"
"""Name of the rule about flags that the table lacks."""
_TABLED = (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.LLAMACPP, EngineKind.TRTLLM)
_OTHER_RULES = {*vllm_flags.NEVER, *vllm_flags.LAST_WITHOUT, *vllm_flags.FIRST_WITHOUT}
"""Flags of vLLM whose absence has a rule of its own."""


def _finder(fault: FlagFault) -> Callable[[Profile], Iterator[Hit]]:
    def find(profile: Profile) -> Iterator[Hit]:
        for one in flag_complaints(profile):
            if one.fault is fault and not _has_own_rule(profile, fault, str(one.path[0])):
                level = Severity.ERROR if one.certain else Severity.WARNING
                yield Hit(("args", *one.path), one.message, one.hint, level)

    return find


def _has_own_rule(profile: Profile, fault: FlagFault, key: str) -> bool:
    if fault is not FlagFault.UNKNOWN or profile.engine is not EngineKind.VLLM:
        return False
    return key.replace("_", "-") in _OTHER_RULES


RULES = (
    Rule(
        UNKNOWN,
        Severity.ERROR,
        "a flag that this version of the engine does not have",
        EVIDENCE,
        _finder(FlagFault.UNKNOWN),
        _TABLED,
    ),
    Rule(
        "flag-value",
        Severity.ERROR,
        "a value of the wrong type, outside the range, or none of the choices",
        EVIDENCE,
        _finder(FlagFault.VALUE),
        _TABLED,
    ),
    Rule(
        "flag-twice",
        Severity.WARNING,
        "two spellings of one flag",
        EVIDENCE,
        _finder(FlagFault.TWICE),
        _TABLED,
    ),
    Rule(
        "flag-deprecated",
        Severity.WARNING,
        "a flag that the engine will drop",
        EVIDENCE,
        _finder(FlagFault.DEPRECATED),
        _TABLED,
    ),
)
