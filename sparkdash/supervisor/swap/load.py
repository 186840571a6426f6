"""From a started container to its first good answer.

A load has no time limit of its own (a 120B model from a slow disk takes an hour). It has a limit on standing still.
Progress is a log line of a shape not seen before, or what the engine's processes read, write and hold. Where the kernel
does not tell what they read, the box's memory counts: more of it taken, or a growing page cache, unless another load is
under way. No progress is a line that only repeats (vLLM's "No available shared memory broadcast block found in 60
seconds"), nor processor time: an engine that hangs spins.
"""

import asyncio
import re
from collections.abc import Awaitable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from sparkdash.domain.engine import EvidenceRequest, LoadProgress
from sparkdash.domain.event import Level
from sparkdash.domain.metric import Memory
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import Profile
from sparkdash.domain.swap import Start, Step, SwapPhase
from sparkdash.engines.generic.known_servers import described_server
from sparkdash.engines.logs import detail
from sparkdash.engines.start_stages import StartStages
from sparkdash.errors import EngineError, HostError, SparkdashError, UpstreamError
from sparkdash.host.kernel_lines import KernelKind, advice
from sparkdash.host.processes import proc
from sparkdash.host.thread import in_thread
from sparkdash.supervisor import engine_end
from sparkdash.supervisor.memory.footprint import FootprintMeter, last_memory
from sparkdash.supervisor.probe import PROBE_S, UNLISTED, health_fault, try_engine, unreachable
from sparkdash.supervisor.state.registry import lines_of
from sparkdash.supervisor.state.swap_record import START, SwapRecord
from sparkdash.supervisor.tools import Tools
from sparkdash.units import MIB, duration

LOOK_S = 2.0
"""Limit of one look, and the pause between two."""


class ProcessProgress:
    """Progress of one load's processes since its first look. `enough`: bytes that count as progress."""

    def __init__(self, tools: Tools, container: str, enough: int) -> None:
        self._tools = tools
        self._container = container
        self._enough = enough
        self._seen: dict[int, int] = {}
        self._gained = 0
        self.reads: dict[int, tuple[int, int]] = {}
        """Bytes that each process has read with calls, and from a disk, as far as the kernel tells."""
        self.tells_reads = False
        """Whether it tells of those that run now: a download by another user's process shows nowhere else."""
        self.held: int | None = None
        """Bytes of memory that they held at the last look; None while unknown."""
        self.peak: int | None = None

    async def moved(self) -> bool | None:
        """Whether the processes have taken in enough since that was last so; None when nobody can tell."""
        found: dict[int, int] = {}
        with suppress(SparkdashError, TimeoutError):
            async with asyncio.timeout(LOOK_S):
                pids, reading = await asyncio.gather(
                    self._tools.runtime.pids(self._container), self._tools.reader.gpu()
                )
                found, reads = await in_thread(lambda: (proc.taken_in(pids), proc.reads(pids)))
                self.reads, self.tells_reads = self.reads | reads, bool(reads)
                self.held = self._tools.reader.engine_bytes(pids, reading) if pids else None
                self.peak = max(self.peak or 0, self.held or 0) or None
            for pid, held in (reading.processes or {}).items():
                if pid in pids:
                    found[pid] = found.get(pid, 0) + held
        if not found:
            return None
        self._gained += sum(max(0, taken - self._seen.get(pid, 0)) for pid, taken in found.items())
        self._seen |= found
        if self._gained < self._enough:
            return False
        self._gained = 0
        return True


_ADDRESS = "In a container with a fixed port the server must listen on 0.0.0.0; `server.health` names the path to ask."
_PORT = "The server must listen on 127.0.0.1 at {port}; `server.health` names the path to ask."
"""Likely mistake of the owner when a described server never answers."""

LACKING_S = 5.0
"""A described server that answers 404 at its health path for so long is told; some add their paths while they load."""
LACKING_STILL_S = 60.0
"""Seconds without progress after which a load with a wrong health path is given up."""

POLL_S = 0.5
FIRST_POLL_S = 0.02
"""Pauses grow up to POLL_S: what is up at once does not wait, and a long load is not asked often."""
RANKS_END_S = 6.0
"""Time after a failed answer in which an engine over several boxes may end: vLLM's ranks ended 3 to 5 s after it."""
POLL_SHARE = 0.1
"""Pause as a share of the time that has passed: an engine is seen to be up at most a tenth later than it is."""
TELL_S = 0.25
"""Seconds between two publications within a stage; vLLM writes 50 progress lines a second while it captures graphs."""
TAKEN = 64 * MIB
OWN_EVERY_S = 2.0

_NUMBERS = re.compile(r"[\d.:%]+")
T = TypeVar("T")


class Loading:
    """An async context manager around one start: watches the container's log and its end."""

    def __init__(
        self,
        tools: Tools,
        profile: Profile,
        container: str,
        url: str,
        record: SwapRecord,
        scale: FootprintMeter | None = None,
        nodes: tuple[str, ...] = (LOCAL,),
    ) -> None:
        self._tools = tools
        self._record = record
        self._scale = scale
        self._adapter = tools.adapter(profile)
        self._profile = profile
        self._container = container
        self._url = url
        self._shapes: set[str] = set()
        self._latest: LoadProgress | None = None
        self._told: LoadProgress | None = None
        self._told_at = 0.0
        self._moved_at = tools.clock.monotonic()
        self._stages = StartStages(self._moved_at, self._adapter.follows)
        self._compiled: bool | None = None
        self._began_at = tools.clock.now()
        self._nodes = nodes
        found = {node: memory for node in nodes if (memory := last_memory(tools, node)) is not None}
        self._lowest = {node: memory.available for node, memory in found.items()}
        self._most_cached = {node: memory.page_cache or 0 for node, memory in found.items()}
        self._own = ProcessProgress(tools, container, TAKEN)
        self._lacking: int | None = None
        """Status by which a described server tells, since `_lacking_since`, that its health's path does not exist."""
        self._lacking_since = 0.0
        self._lacking_advice: str | None = None
        """Advice for the owner about the wrong health path; None until it is told."""

    async def __aenter__(self) -> Self:
        self._end = asyncio.create_task(engine_end.wait_for_end(self._tools, self._container))
        self._log = asyncio.create_task(self._read_log())
        self._memory = asyncio.create_task(self._watch_memory())
        self._kernel = asyncio.create_task(self._watch_kernel())
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        tasks = (self._end, self._log, self._memory, self._kernel)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def until_alive(self) -> None:
        """Wait until the engine's HTTP server answers. Raises EngineError: it ended, or stood still."""
        began = self._tools.clock.monotonic()
        while not await self.while_it_lives(self._alive()):
            self._tell()
            now = self._tools.clock.monotonic()
            still = now - self._moved_at
            limit = self._tools.settings.no_progress_s
            if self._lacking_advice and self._record.extended_at is None:
                limit = min(limit, LACKING_STILL_S)
            left = max(self._moved_at, self._record.extended_at or 0.0) + limit - now
            self._record.still(still, left)
            if left <= 0:
                raise await self._stood_still(still)
            passed = self._tools.clock.monotonic() - began
            pause = min(max(FIRST_POLL_S, POLL_SHARE * passed), POLL_S)
            await self.while_it_lives(self._tools.clock.sleep(pause))

    async def warm(self) -> str | None:
        """Have the engine work a little, as some die at their first request; return its text. Raises EngineError."""
        settings, limit = self._tools.settings, self._tools.settings.warm_s
        self._stages.alive(self._tools.clock.monotonic())
        if described_server(self._profile):  # Ollama and its like load the model for their first request
            limit = max(limit, settings.no_progress_s)
        try:
            return await self.while_it_lives(try_engine(self._tools, self._profile, self._url, limit))
        except UpstreamError as error:
            # a connection that breaks off is most often the first sign of a death
            await self.while_it_lives(self._tools.clock.sleep(POLL_S if len(self._nodes) == 1 else RANKS_END_S))
            raise self._bad_answer(error.message.rstrip(".")) from error

    async def taken_apart(self) -> Start:
        """Return how long each stage took, now that the first token is there, and what its processes read and held."""
        now = self._tools.clock.monotonic()
        with suppress(SparkdashError):
            pids = await self._tools.runtime.pids(self._container)
            self._own.reads |= await in_thread(lambda: proc.reads(pids))
        asked, disk = (sum(counts) for counts in zip((0, 0), *self._own.reads.values(), strict=True))
        created = self._record.swap.stage_s.get(SwapPhase.CREATE, 0.0)
        return Start(
            stages=(Step(name="container", s=created), *self._stages.seconds(now)),
            compiled=self._compiled,
            disk_bytes=disk if self._own.reads else None,
            cached_bytes=asked - disk if asked > disk else None,
            peak_bytes=self._own.peak,
        )

    async def while_it_lives(self, work: Awaitable[T]) -> T:
        """Wait for work on the engine. Raises EngineError: it ended meanwhile."""
        doing = asyncio.ensure_future(work)
        try:
            await asyncio.wait({doing, self._end}, return_when=asyncio.FIRST_COMPLETED)
            if self._end.done() and not doing.done():
                raise await self._crashed()
            return await doing
        finally:
            doing.cancel()
            with suppress(asyncio.CancelledError, SparkdashError):
                await doing

    async def _alive(self) -> bool:
        with suppress(UpstreamError):
            reply = await self._tools.upstream.get(self._url + self._adapter.probes.alive, timeout_s=PROBE_S)
            await self._note_lacking(reply.status)
            return health_fault(self._adapter.probes, reply) is None
        return False

    async def _note_lacking(self, status: int) -> None:
        now = self._tools.clock.monotonic()
        if status not in UNLISTED or not described_server(self._profile):
            if self._lacking_advice:
                self._record.waits(None)
            self._lacking = self._lacking_advice = None
        elif self._lacking is None:
            self._lacking, self._lacking_since = status, now
        elif self._lacking_advice is None and now - self._lacking_since >= LACKING_S:
            path, name = self._adapter.probes.alive, self._profile.name
            self._lacking_advice = await self._other_path()
            self._record.waits(f"200 at {path}, which answers {status}")
            text = f"{name} answers {status} at {path}, its `server.health`, and so does not count as up."
            self._tools.registry.notice(Level.WARNING, "health_not_found", f"{text} {self._lacking_advice}", name)

    async def _other_path(self) -> str:
        path = self._adapter.probes.models
        if path not in (None, self._adapter.probes.alive):
            with suppress(UpstreamError):
                if (await self._tools.upstream.get(self._url + path, timeout_s=PROBE_S)).status == 200:
                    return f"{path} answers 200: if that shows that it is up, write it as `server.health`."
        return "Write the path that answers 200 once it is up as `server.health`."

    async def _read_log(self) -> None:
        """Read the log until the engine ends. A log that cannot be read is tried again, as probes go on without it."""
        tail: int | None = None
        while not self._end.done():
            with suppress(SparkdashError):
                async with lines_of(self._tools.runtime, self._container, follow=True, tail=tail) as lines:
                    async for line in lines:
                        tail = 0  # lines that were read once are not read again
                        self._on_line(line)
            await self._tools.clock.sleep(engine_end.AGAIN_S)

    def _on_line(self, line: str) -> None:
        self._tools.logbook.add(self._profile.name, line)
        self._record.heard()
        if LOCAL in self._nodes:
            self._tools.guarded.heard_load()
        progress = self._adapter.read_log(line)
        self._stages.heard(progress, self._tools.clock.monotonic(), self._adapter.age(line))
        self._note_compilation(line)
        shape = _NUMBERS.sub("", line)
        if shape not in self._shapes or progress not in (None, self._latest):
            self._shapes.add(shape)
            self._moved_at = self._tools.clock.monotonic()
        if progress is None and (self._latest is None or self._latest.stage == START):
            # Imports take a minute and more: the last line shows that the engine works.
            progress = LoadProgress(stage=START, detail=detail(line))
        if progress is not None:
            self._latest = progress
            self._tell()

    def _note_compilation(self, line: str) -> None:
        if self._adapter.compiled_line and (hit := self._adapter.compiled_line.search(line)):
            self._compiled = self._compiled or not hit["cached"]

    def _tell(self) -> None:
        now = self._tools.clock.monotonic()
        if self._latest is None or self._latest == self._told:
            return
        if self._told is not None and self._told.stage == self._latest.stage and now - self._told_at < TELL_S:
            return
        if self._told is None or self._told.stage != self._latest.stage:
            self._record.taken_apart(Start(stages=self._stages.ended()))
        self._told, self._told_at = self._latest, now
        self._tools.registry.progress(self._profile.name, self._latest)
        self._record.progress(self._latest)

    async def _watch_memory(self) -> None:
        """Watch memory for progress until the engine is ready: through its start, load and warm-up."""
        own_at = float("-inf")
        own: bool | None = None
        while True:
            now = self._tools.clock.monotonic()
            if now - own_at >= OWN_EVERY_S:
                own, own_at = await self._own.moved(), now
                if own:
                    self._moved_at = now
            alone = not self._tools.registry.loading(but=self._profile.name, on=self._nodes)
            moved = self._nodes_that_moved()
            if own is not None and self._own.tells_reads:
                moved.discard(LOCAL)
            if moved and (alone or own is None):
                self._moved_at = self._tools.clock.monotonic()
            await self._tools.clock.sleep(POLL_S)

    async def _watch_kernel(self) -> None:
        """Tell the guard when the driver is refused memory, where the kernel's log is readable."""
        if self._tools.kernel_log is None or LOCAL not in self._nodes:
            return
        async with self._tools.kernel_log.follow() as tail:
            while tail is not None:
                refused = sum(line.kind is KernelKind.DRIVER_MEMORY for line in tail.news())
                if refused:
                    self._tools.guarded.driver_refused(refused)
                await self._tools.clock.sleep(POLL_S)

    def _nodes_that_moved(self) -> set[str]:
        moved = set[str]()
        for node in self._nodes:
            if (memory := last_memory(self._tools, node)) is not None:
                taken = self._scale.note(memory.available, node) if self._scale else 0
                if node == self._nodes[0]:
                    self._record.took(taken if self._own.held is None else min(taken, self._own.held))
                if self._has_moved(node, memory):
                    moved.add(node)
        return moved

    def _has_moved(self, node: str, memory: Memory) -> bool:
        moved, cached = False, memory.page_cache or 0
        if memory.available <= self._lowest.setdefault(node, memory.available) - TAKEN:
            self._lowest[node], moved = memory.available, True
        if cached >= self._most_cached.setdefault(node, cached) + TAKEN:
            self._most_cached[node], moved = cached, True
        return moved

    async def _crashed(self) -> EngineError:
        try:
            code = self._end.result()
        except HostError as lost:
            return engine_end.lost_error(self._tools, self._profile, lost, "did not start")
        if code is not None:
            self._log.cancel()  # the followed log may be behind or cut off; the container's is complete
            await self._tools.logbook.close(self._profile.name)
        return await engine_end.crash_error(
            self._tools, self._profile, self._container, code, "did not start", self._began_at
        )

    async def _stood_still(self, still_s: float) -> EngineError:
        """Describe a load that made no progress for so long; takes 20 s at most."""
        tools, profile = self._tools, self._profile
        where = f" in stage {self._latest.stage}" if self._latest else ""
        lacks = f"answers {self._lacking} at {self._adapter.probes.alive} and " if self._lacking_advice else ""
        why = (
            f"{profile.name} {lacks}made no progress for {duration(still_s)}{where}: "
            "no new line in its log, no memory taken."
        )
        kernel = await engine_end.standstill_reason(tools, profile.name, self._began_at)
        hint = "Its last lines may tell; raise `no_progress_s` in config.toml if this engine is only slow."
        if self._lacking_advice:
            hint = self._lacking_advice
        elif (server := described_server(profile)) and (silent := await unreachable(tools, profile, self._url)):
            hint = f"{silent}. {_ADDRESS if server.port else _PORT} {hint}"
        request = EvidenceRequest(
            profile=profile.name,
            kind=profile.engine,
            reason=why,
            container=self._container,
            fingerprint=profile.fingerprint,
            started_at=self._began_at,
        )
        taken = await engine_end.gather_evidence(tools, request)
        return EngineError(
            f"{why} {engine_end.sentence(kernel)}." if kernel else why,
            code="no_progress",
            hint=advice(kernel) if kernel else hint,
            log_tail=self._tail(),
            phase=SwapPhase.LOAD.value,
            evidence=taken.folder if taken else None,
        )

    def _bad_answer(self, why: str) -> EngineError:
        fails = "fails at its work" if described_server(self._profile) else "cannot generate"
        return EngineError(
            f"{self._profile.name} answers its probes and {fails}: {why}.",
            code="bad_answer",
            hint=f"Its log may tell: `sparkdash logs {self._profile.name}`.",
            log_tail=self._tail(),
            phase=SwapPhase.WARM.value,
        )

    def _tail(self) -> tuple[str, ...]:
        # classify masks what looks like a token or a key
        return self._adapter.classify(self._tools.logbook.tail(self._profile.name, engine_end.TAIL), None).log_tail
