"""Evidence of an engine that hangs: the request before the engine is ended, and the folder that holds the result.

Pure.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkdash.domain.profile import EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRequest:
    """Request for evidence about one engine. Times are Unix seconds; `looks` are JSON-ready, without prompts."""

    profile: str
    kind: EngineKind
    reason: str
    """Reason to suspect the engine, in one sentence."""
    pids: frozenset[int] = frozenset()
    """Host pids of the engine's processes, as last known; empty when the runtime lists none."""
    container: str | None = None
    fingerprint: str = ""
    version: str | None = None
    started_at: float | None = None
    """Start of the engine; kernel log lines count from here."""
    looks: Sequence[Mapping[str, Any]] = ()
    """Last looks at the engine, oldest first."""
    log: Sequence[str] = ()
    """Last lines of the engine's raw log; secrets and prompts are removed when the lines are kept."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Location of evidence. Without `folder`, `problem` says why; with both, only part was written."""

    folder: str | None
    problem: str | None = None


TakeEvidence = Callable[[EvidenceRequest], Awaitable[Evidence]]
"""Callback that takes evidence within 20 s, and raises only when cancelled."""


async def no_evidence(_request: EvidenceRequest) -> Evidence:
    """Take none: the default where no folder is kept, as on a simulated box."""
    return Evidence(None, "No evidence is kept here.")
