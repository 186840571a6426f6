"""Short questions to an engine over HTTP: does it answer, does it generate, which version is it?

Owns: the questions and their limits. Must not know what follows from an answer.
"""

from __future__ import annotations

import json
from contextlib import suppress

from sparkdash.domain.profile import Profile
from sparkdash.errors import UpstreamError
from sparkdash.supervisor.tools import Tools

PROBE_S = 2.0
"""Limit of one probe."""
UNLISTED = frozenset({404, 405, 501})
"""Answers of a server that is there and has no list of models; only one that is not ours is probed by that list."""


async def unreachable(tools: Tools, profile: Profile, url: str) -> str | None:
    """Why the engine's liveness probe is not answered as it should be; None when it is."""
    adapter = tools.adapter(profile.engine)
    probe = adapter.probes.alive
    try:
        reply = await tools.upstream.get(url + probe, timeout_s=PROBE_S)
    except UpstreamError as error:
        return error.message.rstrip(".")
    alive = reply.status == 200 or (not adapter.managed and reply.status in UNLISTED)
    return None if alive else f"{probe} answered {reply.status}"


async def version_of(tools: Tools, profile: Profile, url: str) -> str | None:
    """The engine's own version, when it tells one."""
    path = tools.adapter(profile.engine).probes.version
    if path is None:
        return None
    with suppress(UpstreamError, ValueError, KeyError, TypeError):
        reply = await tools.upstream.get(url + path, timeout_s=PROBE_S)
        return str(json.loads(reply.body)["version"])
    return None


async def mute(tools: Tools, profile: Profile, url: str, *, limit_s: float) -> str | None:
    """Why it does not generate a few tokens within the limit; None when it does, or when it has no chat to ask in."""
    adapter = tools.adapter(profile.engine)
    if adapter.probes.chat is None:
        return None
    model = adapter.served_names(profile)[0]
    try:
        await tools.upstream.generate(url + adapter.probes.chat, model, timeout_s=limit_s)
    except UpstreamError as error:
        return error.message.rstrip(".")
    return None
