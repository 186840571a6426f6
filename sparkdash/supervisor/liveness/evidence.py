"""Evidence of one engine that hangs, requested with all that the supervisor knows of it.

Owns: completing the request, and its limits. Nothing here fails: an engine is repaired, or given up, also without
evidence.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import structlog

from sparkdash.domain.evidence import Evidence, EvidenceRequest
from sparkdash.errors import SparkdashError
from sparkdash.supervisor.bounded import bounded
from sparkdash.supervisor.tools import Tools

LOG = structlog.get_logger("sparkdash.supervisor")
EVIDENCE_S = 20.0
"""Limit of taking evidence: nobody waits longer for a repair because of it."""
PIDS_S = 2.0
"""Limit of asking the runtime for the engine's processes."""
LOG_LINES = 200


async def gather_evidence(tools: Tools, about: EvidenceRequest) -> Evidence | None:
    """Take evidence of the engine, its pids and last log lines added; None when that took too long or failed."""
    pids: set[int] | None = None
    if about.container is not None:
        with suppress(SparkdashError):
            pids = await bounded(tools.runtime.pids(about.container), tools.clock, PIDS_S)
    log = await tools.logbook.recent(about.profile, LOG_LINES)
    request = replace(about, pids=frozenset(pids or ()), log=log)
    try:
        return await bounded(tools.take_evidence(request), tools.clock, EVIDENCE_S)
    except Exception:  # whatever failed, the repair goes on without the evidence
        LOG.exception("no evidence of an engine", profile=about.profile)
        return None
