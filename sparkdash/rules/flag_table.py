"""Rules by the flag tables of the engines: unknown flags, values that the parser refuses, flags given twice.

An error where the engine is sure to refuse the line; a warning where the version is not named or the image is a fork.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.flag_check import FlagFault, flag_complaints
from sparkdash.rules.rule import Hit, Rule, Severity

EVIDENCE = (
    "read in the sources of vLLM 0.11 to 0.32, SGLang 0.5.3 to 0.5.23, llama.cpp b5640 to v0.5.0, TensorRT-LLM 1.3"
)
UNKNOWN = "unknown-flag"
"""Name of the rule about flags that the table lacks."""
_TABLED = (EngineKind.VLLM, EngineKind.SGLANG, EngineKind.LLAMACPP, EngineKind.TRTLLM)


def _finder(fault: FlagFault) -> Callable[[Profile], Iterator[Hit]]:
    def find(profile: Profile) -> Iterator[Hit]:
        for one in flag_complaints(profile):
            if one.fault is fault:
                level = Severity.ERROR if one.certain else Severity.WARNING
                yield Hit(("args", *one.path), one.message, one.hint, level)

    return find


RULES = (
    Rule(
        UNKNOWN,
        Severity.ERROR,
        "a flag that this version of the engine does not have",
        EVIDENCE,
        _finder(FlagFault.UNKNOWN),
        _TABLED,
        yields=True,
    ),
    Rule(
        "flag-value",
        Severity.ERROR,
        "a value of the wrong type, outside the range, or none of the choices",
        EVIDENCE,
        _finder(FlagFault.VALUE),
        _TABLED,
        yields=True,
    ),
    Rule(
        "flag-twice",
        Severity.WARNING,
        "two spellings of one flag",
        EVIDENCE,
        _finder(FlagFault.TWICE),
        _TABLED,
        yields=True,
    ),
    Rule(
        "flag-deprecated",
        Severity.WARNING,
        "a flag that the engine will drop",
        EVIDENCE,
        _finder(FlagFault.DEPRECATED),
        _TABLED,
        yields=True,
    ),
)
NAMES = frozenset(rule.name for rule in RULES)
"""Names of these rules."""
