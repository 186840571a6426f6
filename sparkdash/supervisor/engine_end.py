"""Engine end: when an engine ended by itself, and why: the word of the memory guard, of its log, of the kernel."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sparkdash.domain.engine import Evidence, EvidenceRequest, Failure
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import Profile
from sparkdash.engines.logs import KILLED
from sparkdash.errors import EngineError, SparkdashError
from sparkdash.host.kernel_lines import KernelKind, KernelLine, advice, explains, holds_up, is_of, meaning
from sparkdash.log import LOG
from sparkdash.supervisor.state.clock import bounded
from sparkdash.supervisor.tools import Tools

RECENT_S = 300.0
"""Seconds before a running engine's death that its search of the kernel's log covers."""
NEAR_S = 60.0
"""Seconds before an engine's end in which a kill or GPU fault is told even if the kernel does not say whose it was."""
_UNEXPLAINED = frozenset({"engine_crash", "out_of_memory"})
"""Codes of failures that the kernel may know more about."""


async def with_kernel(tools: Tools, profile: str, container: str, failure: Failure, since: float) -> Failure:
    """Add the kernel's line to a failure, where one explains it; the same failure where none does."""
    if tools.kernel_log is None or failure.code not in _UNEXPLAINED or LOCAL not in _nodes_of(tools, profile):
        return failure
    found = await tools.kernel_log.since(since)
    if found is None or not found.lines:
        return failure
    id_: str | None = None
    with suppress(SparkdashError):
        info = await tools.runtime.inspect(container)
        id_ = info.id if info else None
    # of an engine over several boxes, another box's part may have failed by itself
    near = tools.clock.now() - NEAR_S if _nodes_of(tools, profile) == (LOCAL,) else None
    line = explains(found, (), id_, near=near)
    return failure if line is None else join_reasons(failure, line, is_ours=is_of(line, (), id_))


async def standstill_reason(tools: Tools, profile: str, since: float) -> KernelLine | None:
    """Return the kernel's report since that moment (Unix seconds) that explains a standstill; None without one."""
    if tools.kernel_log is None or LOCAL not in _nodes_of(tools, profile):
        return None
    found = await tools.kernel_log.since(since)
    return None if found is None else holds_up(found)


def _nodes_of(tools: Tools, profile: str) -> tuple[str, ...]:
    """Nodes of the profile's engine: the kernel of another box writes a log of its own."""
    engine = tools.registry.engines.get(profile)
    return engine.nodes if engine else (LOCAL,)


def join_reasons(failure: Failure, line: KernelLine, *, is_ours: bool) -> Failure:
    text = sentence(line)
    if is_ours and line.kind is KernelKind.OOM_KILL:
        return failure.replace(code="out_of_memory", message=text, hint=advice(line))
    known = failure.code != "engine_crash" and failure.exit_code not in KILLED
    message = f"{failure.message.rstrip('.')}. {text}"
    return failure.replace(message=message, hint=failure.hint if known else advice(line))


def sentence(line: KernelLine) -> str:
    words = meaning(line)
    return words[0].upper() + words[1:]


EVIDENCE_S = 20.0
PIDS_S = 2.0
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


TAIL = 40
"""Log lines that an error carries."""
AGAIN_S = 5.0
"""Pause after the runtime could not be asked."""
KILLED_S = 2.0
"""Seconds in which the runtime may clear away an engine that the guard killed; it often hangs just then."""

LOST = frozenset({"node_unreachable", "node_restarted", "link_down", "rank_held"})
"""Codes of the error of an engine that lost one of its nodes, the link between them, or the work of one rank."""
REMOVED = -1000
"""Stands for the exit code of a container that is no longer there."""
ORDERED_ENDS = frozenset({0, 128 + 2, 128 + 9, 128 + 15})
"""Exit codes of a container that somebody ended from outside: by a signal, or after one with 0."""
REMOVAL_S = 1.0
"""Seconds in which a container that somebody ends is removed as well: `podman rm -f` takes 0.1 s on an idle box."""
REMOVAL_LOOK_S = 0.2


async def wait_for_end(tools: Tools, container: str) -> int | None:
    """Wait for the exit code; None after the guard's kill. Raises HostError: a node or the link is lost."""
    asked = asyncio.ensure_future(_exit_code(tools, container))
    either: set[asyncio.Future[Any]] = {asked, *filter(None, [tools.guarded.killed(container)])}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({asked}, timeout=KILLED_S)
        return asked.result() if asked.done() else None
    finally:
        asked.cancel()


async def _exit_code(tools: Tools, container: str) -> int:
    """A runtime that cannot be asked is asked again: it is no engine's end."""
    while True:
        try:
            code = await tools.runtime.wait(container)
            break
        except SparkdashError as error:
            if error.code in LOST:
                raise
        await tools.clock.sleep(AGAIN_S)
    return REMOVED if await _is_removed(tools, container, code) else code


async def _is_removed(tools: Tools, container: str, code: int) -> bool:
    until = tools.clock.monotonic() + (REMOVAL_S if code in ORDERED_ENDS else 0.0)
    while True:
        with suppress(SparkdashError):
            if await tools.runtime.inspect(container) is None:
                return True
        if tools.clock.monotonic() >= until:
            return False
        await tools.clock.sleep(REMOVAL_LOOK_S)


async def crash_error(
    tools: Tools, profile: Profile, container: str, code: int | None, what: str, since: float
) -> EngineError:
    """Say why an engine ended: the guard's word, else its log with the kernel's lines since then (Unix seconds)."""
    if killed := tools.guarded.reason(container) or await tools.killed_on_node(container):
        return killed
    removed = code == REMOVED
    # below zero: the runtime could not tell
    code = code if code is not None and code >= 0 else None
    failure = tools.adapter(profile).classify(tools.logbook.tail(profile.name), code)
    if removed:
        return EngineError(
            f"{profile.name} {what}. Its container {container} was removed, and not by sparkdash.",
            code="container_removed",
            hint=f"Find out who or what runs `{tools.runtime.name} rm` on this box.",
            log_tail=failure.log_tail[-TAIL:],
        )
    failure = await with_kernel(tools, profile.name, container, failure, since)
    return EngineError(
        f"{profile.name} {what}. {failure.message.rstrip('.')}.",
        code=failure.code,
        hint=failure.hint_for(profile.name),
        container_exit=code,
        log_tail=failure.log_tail[-TAIL:],
    )


def lost_error(tools: Tools, profile: Profile, lost: SparkdashError, what: str) -> EngineError:
    """Return the error of an engine that lost one of its nodes; `what` it did: "did not start", "was ended"."""
    adapter = tools.adapter(profile)
    return EngineError(
        f"{profile.name} {what}. {lost.message}",
        code=lost.code,
        hint=lost.hint,
        log_tail=adapter.classify(tools.logbook.tail(profile.name, TAIL), None).log_tail,  # which masks secrets
    )
