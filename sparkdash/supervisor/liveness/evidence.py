"""Evidence of one engine, asked for with all that the supervisor knows of it.

Owns: gathering the request and its limits. Nothing here fails: an engine is repaired, or given up, also without
evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog

from sparkdash.domain.evidence import Evidence, EvidenceRequest
from sparkdash.domain.profile import EngineKind
from sparkdash.errors import SparkdashError
from sparkdash.supervisor.bounded import bounded
from sparkdash.supervisor.tools import Tools

LOG = structlog.get_logger("sparkdash.supervisor")
EVIDENCE_S = 20.0
"""Limit of taking evidence: nobody waits longer for a repair because of it."""
PIDS_S = 2.0
"""Limit of asking the runtime for the engine's processes."""
LOG_LINES = 200


async def gather_evidence(
    tools: Tools,
    profile: str,
    kind: EngineKind,
    reason: str,
    *,
    container: str | None,
    url: str | None,
    fingerprint: str,
    version: str | None = None,
    started_at: float | None = None,
    looks: Sequence[Mapping[str, Any]] = (),
    light: bool = False,
) -> Evidence | None:
    """Take evidence of the engine; None when that took too long or failed."""
    pids: set[int] | None = None
    if container is not None:
        with suppress(SparkdashError):
            pids = await bounded(tools.runtime.pids(container), tools.clock, PIDS_S)
    request = EvidenceRequest(
        profile=profile,
        kind=kind,
        reason=reason,
        pids=frozenset(pids or ()),
        container=container,
        url=url,
        fingerprint=fingerprint,
        version=version,
        started_at=started_at,
        looks=looks,
        log=() if light else await tools.logbook.recent(profile, LOG_LINES),
        light=light,
    )
    try:
        return await bounded(tools.take_evidence(request), tools.clock, EVIDENCE_S)
    except Exception:  # whatever it was, the engine is repaired all the same
        LOG.exception("no evidence of an engine", profile=profile)
        return None
