"""Kernel reason: what the kernel's log adds to an engine's own words about its end or standstill.

Owns: when the kernel's log is asked, and how its line joins a failure. An engine that the kernel killed says nothing
itself, and a fault of the GPU shows in its log as any exception.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from sparkdash.domain.engine import Failure
from sparkdash.domain.node import LOCAL
from sparkdash.engines.logs import KILLED
from sparkdash.errors import SparkdashError
from sparkdash.host.kernel_log.lines import KernelKind, KernelLine, advice, explains, holds_up, is_of, meaning
from sparkdash.supervisor.tools import Tools

RECENT_S = 300.0
"""Seconds before a running engine's death that its search of the kernel's log covers."""
NEAR_S = 60.0
"""Seconds before an engine's end in which a kill or GPU fault is told even if the kernel does not say whose it was."""
_UNEXPLAINED = frozenset({"engine_crash", "out_of_memory"})
"""Codes of failures that the kernel may know more about."""


async def with_kernel(tools: Tools, profile: str, container: str, failure: Failure, since: float) -> Failure:
    """Add the kernel's line to a failure, where one explains it; the same failure where none does."""
    if tools.kernel_log is None or failure.code not in _UNEXPLAINED or not _runs_here(tools, profile):
        return failure
    found = await tools.kernel_log.since(since)
    if found is None or not found.lines:
        return failure
    id_: str | None = None
    with suppress(SparkdashError):
        info = await tools.runtime.inspect(container)
        id_ = info.id if info else None
    line = explains(found, (), id_, near=tools.clock.now() - NEAR_S)
    return failure if line is None else join_reasons(failure, line, is_ours=is_of(line, (), id_))


@dataclass(frozen=True, slots=True)
class KernelReason:
    """A sentence, and what to do."""

    words: str
    advice: str


async def standstill_reason(tools: Tools, profile: str, since: float) -> KernelReason | None:
    """Return the kernel's report since that moment (Unix seconds) that explains a standstill; None without one."""
    if tools.kernel_log is None or not _runs_here(tools, profile):
        return None
    found = await tools.kernel_log.since(since)
    line = None if found is None else holds_up(found)
    return None if line is None else KernelReason(_sentence(line), advice(line))


def _runs_here(tools: Tools, profile: str) -> bool:
    """Whether the profile's engine uses this box: the kernel of another node writes a log of its own."""
    engine = tools.books.engines.get(profile)
    return engine is None or LOCAL in engine.nodes


def join_reasons(failure: Failure, line: KernelLine, *, is_ours: bool) -> Failure:
    """Join the engine's and the kernel's words to one failure."""
    sentence = _sentence(line)
    if is_ours and line.kind is KernelKind.OOM_KILL:
        return failure.replace(code="out_of_memory", message=sentence, hint=advice(line))
    known = failure.code != "engine_crash" and failure.exit_code not in KILLED
    message = f"{failure.message.rstrip('.')}. {sentence}"
    return failure.replace(message=message, hint=failure.hint if known else advice(line))


def _sentence(line: KernelLine) -> str:
    words = meaning(line)
    return words[0].upper() + words[1:]
