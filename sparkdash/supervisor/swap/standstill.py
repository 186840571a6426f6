"""A load that stands still is given up: why, with the kernel's word and the evidence kept before it is ended."""

from __future__ import annotations

from collections.abc import Sequence

from sparkdash.domain.evidence import EvidenceRequest
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.domain.swap import SwapPhase
from sparkdash.engines.generic.known_servers import server_of
from sparkdash.errors import EngineError
from sparkdash.supervisor.liveness import kernel_reason
from sparkdash.supervisor.liveness.evidence import gather_evidence
from sparkdash.supervisor.liveness.probe import unreachable
from sparkdash.supervisor.tools import Tools
from sparkdash.units import duration

_ADDRESS = "In a container with a fixed port the server must listen on 0.0.0.0; `server.health` names the path to ask."
_PORT = "The server must listen on 127.0.0.1 at {port}; `server.health` names the path to ask."
"""Likely mistake of the owner when a described server never answers."""


async def describe_standstill(
    tools: Tools,
    profile: Profile,
    container: str,
    url: str,
    *,
    stage: str | None,
    still_s: float,
    began_at: float,
    log_tail: Sequence[str],
) -> EngineError:
    """Describe a load that made no progress for `still_s` seconds; takes 20 s at most. `began_at` in Unix seconds."""
    where = f" in stage {stage}" if stage else ""
    why = f"{profile.name} made no progress for {duration(still_s)}{where}: no new line in its log, no memory taken."
    kernel = await kernel_reason.standstill_reason(tools, profile.name, began_at)
    hint = "Its last lines may tell; raise `no_progress_s` in config.toml if this engine is only slow."
    if profile.engine is EngineKind.GENERIC and (silent := await unreachable(tools, profile, url)):
        hint = f"{silent}. {_ADDRESS if server_of(profile).port else _PORT} {hint}"
    request = EvidenceRequest(
        profile=profile.name,
        kind=profile.engine,
        reason=why,
        container=container,
        fingerprint=profile.fingerprint,
        started_at=began_at,
    )
    taken = await gather_evidence(tools, request)
    return EngineError(
        f"{why} {kernel.words}." if kernel else why,
        code="no_progress",
        hint=kernel.advice if kernel else hint,
        log_tail=tuple(log_tail),
        phase=SwapPhase.LOAD.value,
        evidence=taken.folder if taken else None,
    )
