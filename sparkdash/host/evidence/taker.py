"""EvidenceTaker: takes all parts of the evidence at once, each with its own time limit.

Owns: the parts, their time limits, and keeping one part's failure from the others. Must not know why an engine looks
stuck, nor what follows.
"""

from __future__ import annotations

import asyncio
import json
import platform
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from sparkdash import __version__
from sparkdash.domain.evidence import Evidence, EvidenceRequest
from sparkdash.engines import registry
from sparkdash.host.evidence import incident_folder, processes, redacted_text, stacks
from sparkdash.host.evidence.kernel_state import kernel_text
from sparkdash.host.evidence.processes import ProcessSeen
from sparkdash.host.kernel_log.reader import KernelLog
from sparkdash.host.processes.proc import PROC
from sparkdash.host.reader import HostReader
from sparkdash.host.thread import in_thread
from sparkdash.redaction import masked_values

LOG = structlog.get_logger("sparkdash.evidence")

TAKE_S = 15.0
"""Time limit of all parts together; making the folder and ending late parts take some seconds more."""
SPAN_S = 1.0
"""Seconds over which processor time is measured."""
LIGHT_SPAN_S = 0.25
LIGHT_S = 3.0
"""Time limit of light evidence, which takes 0.3 s unless the box is overloaded."""
PROCESSES_S = 4.0
ARGV_S = 0.5
"""Time limit of reading all command lines; they take microseconds."""
STACKS_S = 14.0
PAGE_S = 2.0
"""Time limit of a request to the engine; even a hanging one mostly answers at once."""
KERNEL_S = 8.0
BOX_S = 2.0
"""Time limit of a figure of the box, as the driver itself may hang."""
LIGHT_BOX_S = 0.5
WRITE_S = 3.0
"""Time limit of writing a file, as a hanging disk must not delay the repair."""
HOUR_S = 3600.0
"""Span of the kernel's log if the engine's start is unknown."""

Fetch = Callable[[str], Awaitable[bytes]]


@dataclass(slots=True)
class _Case:
    """Evidence being taken, with the state that its parts share."""

    request: EvidenceRequest
    folder: Path
    at: float
    seen: asyncio.Task[tuple[ProcessSeen, ...]]
    problems: list[str] = field(default_factory=list)


class EvidenceTaker:
    """Takes evidence into folders below `parent`. `fetch` gets a page of an engine, and may raise anything."""

    def __init__(
        self, parent: Path, reader: HostReader, fetch: Fetch, log: KernelLog, clock: Callable[[], float] = time.time
    ) -> None:
        self._parent = parent
        self._reader = reader
        self._fetch = fetch
        self._log = log
        self._clock = clock

    async def take(self, request: EvidenceRequest) -> Evidence:
        """Take evidence of this engine now, within TAKE_S and a few seconds; light evidence takes 0.3 s.

        Raises only when cancelled, as a repair goes on without evidence.
        """
        at = self._clock()
        create = partial(incident_folder.create, self._parent, request.profile, at, light=request.light)
        try:
            async with asyncio.timeout(WRITE_S):
                folder = await in_thread(create)
        except TimeoutError:
            return _nowhere(f"{self._parent} did not answer within {WRITE_S:g} s")
        except (OSError, RuntimeError) as error:  # RuntimeError: the box has no thread left
            return _nowhere(f"{self._parent} cannot be written: {_why(error, WRITE_S).rstrip('.')}")
        case = await self._fill(request, folder, at)
        with suppress(OSError, RuntimeError, TimeoutError):
            async with asyncio.timeout(WRITE_S):
                await in_thread(partial(incident_folder.forget_old, folder))
        missing = "; ".join(case.problems)
        if missing:
            LOG.warning("part of the evidence is missing", folder=str(folder), why=missing)
        return Evidence(str(folder), f"Part of the evidence is missing: {missing}." if missing else None)

    async def _fill(self, request: EvidenceRequest, folder: Path, at: float) -> _Case:
        """Take all parts at once into the folder; late ones are given up."""
        span_s = LIGHT_SPAN_S if request.light else SPAN_S
        seen = asyncio.create_task(_processes(request, span_s), name="evidence processes")
        case = _Case(request, folder, at, seen)
        parts = self._light(case, span_s) if request.light else self._parts(case, span_s)
        tasks = [asyncio.create_task(part, name="evidence") for part in parts]
        try:
            _, late = await asyncio.wait(tasks, timeout=LIGHT_S if request.light else TAKE_S)
        finally:
            for task in (*tasks, seen):
                task.cancel()
            await asyncio.gather(*tasks, seen, return_exceptions=True)
        if late:
            case.problems.append(f"{len(late)} parts were not there in time")
        return case

    def _light(self, case: _Case, span_s: float) -> list[Coroutine[Any, Any, None]]:
        return [
            _part(case, "processes.txt", PROCESSES_S, lambda: _processes_text(case, span_s)),
            _part(case, "summary.json", PROCESSES_S, lambda: self._summary(case)),
        ]

    def _parts(self, case: _Case, span_s: float) -> list[Coroutine[Any, Any, None]]:
        request = case.request
        names = registry.adapter(request.kind).metrics
        since = request.started_at if request.started_at is not None else case.at - HOUR_S
        parts = [
            *self._light(case, span_s),
            _part(case, "log.txt", BOX_S, lambda: _log_text(request)),
            _part(case, "stacks.txt", STACKS_S, lambda: _stacks_text(case)),
            _part(case, "kernel.txt", KERNEL_S, lambda: kernel_text(self._log, since, request.pids)),
        ]
        root = (request.url or "").rstrip("/")
        if root and names.path:
            parts.append(_part(case, "metrics.txt", PAGE_S, partial(self._page, root + names.path)))
        if root and names.slots:
            parts.append(_part(case, "slots.json", PAGE_S, partial(self._slots, root + names.slots)))
        return parts

    async def _page(self, url: str) -> str:
        return (await self._fetch(url)).decode("utf-8", "replace")

    async def _slots(self, url: str) -> str:
        return redacted_text.slots_text(await self._fetch(url))

    async def _summary(self, case: _Case) -> str:
        request, failed = case.request, {}
        limit_s = LIGHT_BOX_S if request.light else BOX_S
        found: dict[str, Any] = {}
        for name, look in (("gpu", self._gpu), ("memory", self._memory), ("driver", _driver)):
            try:
                async with asyncio.timeout(limit_s):
                    found[name] = await look()
            except Exception as error:  # noqa: BLE001 - a failing driver must not cost the other figures
                failed[name] = _why(error, limit_s)
        try:
            found["cpu_share"] = {f"{one.pid} {one.name}": one.cpu_share for one in await asyncio.shield(case.seen)}
        except Exception as error:  # noqa: BLE001 - as above
            failed["cpu_share"] = _why(error, PROCESSES_S)
        about = {
            "profile": request.profile,
            "engine": request.kind.value,
            "engine_version": request.version,
            "fingerprint": request.fingerprint,
            "container": request.container,
            "reason": request.reason,
            "taken_at": case.at,
            "engine_started_at": request.started_at,
            "sparkdash": __version__,
            "kernel": platform.release(),
            "looks": list(request.looks),
            **found,
            "not_known": failed,
        }
        return json.dumps(masked_values(about), indent=1, default=str) + "\n"

    async def _gpu(self) -> dict[str, Any] | None:
        gpu = (await self._reader.gpu()).gpu
        return None if gpu is None else gpu.model_dump(mode="json")

    async def _memory(self) -> dict[str, Any]:
        return self._reader.memory().model_dump(mode="json")


async def _part(case: _Case, name: str, limit_s: float, make: Callable[[], Awaitable[str]]) -> None:
    try:
        async with asyncio.timeout(limit_s):
            text = await make()
    except Exception as error:  # noqa: BLE001 - one part must not cost the others
        text = f"Not taken: {_why(error, limit_s)}\n"
        text = json.dumps({"not_taken": _why(error, limit_s)}) + "\n" if name.endswith(".json") else text
    try:
        async with asyncio.timeout(WRITE_S):
            await in_thread(lambda: incident_folder.write(case.folder, name, text))
    except (OSError, RuntimeError, TimeoutError) as error:
        case.problems.append(f"{name} cannot be written: {_why(error, WRITE_S).rstrip('.')}")


async def _processes(request: EvidenceRequest, span_s: float) -> tuple[ProcessSeen, ...]:
    async with asyncio.timeout(PROCESSES_S):
        found = await in_thread(lambda: processes.measure_processes(request.pids, span_s))
    named: dict[int, ProcessSeen] = {}

    def name() -> None:
        for one in found:
            named[one.pid] = processes.with_argv(one)

    with suppress(TimeoutError):  # a process began to hang just now: those before it are named
        async with asyncio.timeout(ARGV_S):
            await in_thread(name)
    return tuple(named.get(one.pid, one) for one in found)


async def _processes_text(case: _Case, span_s: float) -> str:
    if not case.request.pids:
        return "The engine's processes are unknown: the runtime did not report them.\n"
    found = await asyncio.shield(case.seen)
    gone = sorted(case.request.pids - {one.pid for one in found})
    ended = f"\nEnded, or beyond the limit of processes: {', '.join(map(str, gone))}\n" if gone else ""
    return redacted_text.processes_text(found, span_s) + ended


async def _stacks_text(case: _Case) -> str:
    found = await asyncio.shield(case.seen)
    python, kernel = await asyncio.gather(stacks.python_stacks(found), stacks.kernel_stacks(found))
    return f"{python}\n== in the kernel\n{kernel}"


async def _log_text(request: EvidenceRequest) -> str:
    if not request.log:
        return "The engine said nothing.\n"
    return "\n".join(await in_thread(lambda: redacted_text.log_lines(request.log))) + "\n"  # 200 long lines take 0.2 s


async def _driver() -> str | None:
    return await in_thread(_driver_version)


def _driver_version() -> str | None:
    try:
        return (PROC / "driver/nvidia/version").read_text().partition("\n")[0]
    except OSError:
        return None


def _why(error: BaseException, limit_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {limit_s:g} s."
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}."
    return str(error) or type(error).__name__


def _nowhere(problem: str) -> Evidence:
    LOG.warning("no evidence can be kept", why=problem)
    return Evidence(None, f"No evidence was kept: {problem}.")
