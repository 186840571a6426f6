"""Evidence of an engine that hangs: what is asked for before the engine is ended, and where it was kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkdash.domain.profile import EngineKind


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceRequest:
    """One engine at one moment. Times are Unix seconds; `looks` are JSON-ready, without prompts."""

    profile: str
    kind: EngineKind
    reason: str
    """Why the engine looks stuck, in one sentence."""
    pids: frozenset[int] = frozenset()
    """Host pids of its processes, as last known; empty when the runtime does not tell."""
    container: str | None = None
    url: str | None = None
    """Root URL of its server, which is asked for its figures."""
    fingerprint: str = ""
    version: str | None = None
    started_at: float | None = None
    """Start of the engine; lines of the kernel's log count from here."""
    looks: Sequence[Mapping[str, Any]] = ()
    """The last looks at it, oldest first."""
    log: Sequence[str] = ()
    """The last lines of its log, as it wrote them; secrets and prompts are removed when they are kept."""
    light: bool = False
    """Only processes and figures, in 0.3 s: for an engine that is merely suspected."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where evidence is kept. `folder` None: nowhere, and `problem` says why; both: only part of it was written."""

    folder: str | None
    problem: str | None = None


TakeEvidence = Callable[[EvidenceRequest], Awaitable[Evidence]]
"""Takes evidence within 20 s (a light one in 0.3 s), and never raises but when it is cancelled."""


async def no_evidence(_request: EvidenceRequest) -> Evidence:
    """Take none: the default where no folder is kept, as on a simulated box."""
    return Evidence(None, "No evidence is kept here.")
