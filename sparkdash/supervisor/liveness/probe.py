"""Short questions to an engine over HTTP: does it answer, does it generate, which version is it?

Owns: the questions and their limits. Must not know what follows from an answer.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from sparkdash.domain.engine import Engine
from sparkdash.domain.profile import Profile
from sparkdash.engines.adapter import Probes
from sparkdash.errors import EngineError, UpstreamError
from sparkdash.supervisor.liveness.signals import HealthAnswer
from sparkdash.supervisor.liveness.trial import try_engine
from sparkdash.supervisor.tools import Tools
from sparkdash.upstream import SmallResponse

PROBE_S = 2.0
"""Limit of one probe."""
PROOF_S = 20.0
"""Limit of the short generation that shows whether an engine works after a bad answer."""
UNLISTED = frozenset({404, 405, 501})
"""Statuses of a server that is there without a list of models; only attached servers are probed by that list."""


async def unreachable(tools: Tools, profile: Profile, url: str) -> str | None:
    """Probe the engine's health; return what is wrong with the answer, or None when it is well."""
    try:
        return await _wrong_with(tools, profile, url)
    except UpstreamError as error:
        return error.message.rstrip(".")


async def sickness(tools: Tools, profile: Profile, url: str) -> str | None:
    """Probe the engine's health; return why it looks dead or broken, or None when it is well or only slow.

    An engine under load is slow to answer.
    """
    try:
        return await _wrong_with(tools, profile, url)
    except UpstreamError as error:
        return None if error.code == "engine_timeout" else error.message.rstrip(".")


async def health(tools: Tools, profile: Profile, url: str) -> HealthAnswer:
    """Probe the engine's liveness once."""
    try:
        return HealthAnswer.BROKEN if await _wrong_with(tools, profile, url) else HealthAnswer.WELL
    except UpstreamError as error:
        return HealthAnswer.SILENT if error.code == "engine_timeout" else HealthAnswer.BROKEN


async def _wrong_with(tools: Tools, profile: Profile, url: str) -> str | None:
    adapter = tools.adapter(profile)
    probes = adapter.probes
    reply = await tools.upstream.get(url + probes.alive, timeout_s=PROBE_S)
    if not adapter.managed and reply.status in UNLISTED:
        return None
    if fault := health_fault(probes, reply):
        return fault
    if probes.alive == probes.models and not reply.body.lstrip().startswith((b"{", b"[")):
        return f"{probes.alive} answered without a list of models"
    return None


def health_fault(probes: Probes, reply: SmallResponse) -> str | None:
    """Why this answer of the health path does not show a server that is up; None when it does."""
    if reply.status != 200:
        return f"{probes.alive} answered {reply.status}"
    if not probes.alive_has:
        return None
    try:
        told: Any = json.loads(reply.body)
    except (ValueError, RecursionError):
        return f"{probes.alive} answered no JSON"
    found = told if isinstance(told, dict) else {}
    wrong = next((key for key, value in probes.alive_has.items() if found.get(key) != value), None)
    return None if wrong is None else f"{probes.alive} answered {wrong}: {found.get(wrong)}"


async def version_of(tools: Tools, profile: Profile, url: str) -> str | None:
    """Return the engine's own version, where it tells one."""
    path = tools.adapter(profile).probes.version
    if path is None:
        return None
    with suppress(UpstreamError, ValueError, KeyError, TypeError):
        reply = await tools.upstream.get(url + path, timeout_s=PROBE_S)
        return str(json.loads(reply.body)["version"])
    return None


async def work_fault(tools: Tools, profile: Profile, url: str, *, limit_s: float) -> str | None:
    """Ask for a small piece of work; return why the engine did not do it within the limit, or None."""
    try:
        await try_engine(tools, profile, url, limit_s)
    except (UpstreamError, EngineError) as error:
        return error.message.rstrip(".")
    return None


async def speaks_nonsense(tools: Tools, profile: Profile, engine: Engine) -> str | None:
    """Request a short generation; return what is wrong with the answer, or None when it is sound or late."""
    try:
        await try_engine(tools, profile, engine.url or "", PROOF_S, engine.model_id)
    except (UpstreamError, EngineError) as error:
        return None if error.code == "engine_timeout" else error.message.rstrip(".")
    return None
