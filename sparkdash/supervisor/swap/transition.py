"""Transition: one change of residents, from the first drain to the last warm-up token.

Rule 1: what can be known to fail is looked at before anything is stopped.
Rule 2: a stop or a start that has begun is finished, also when the swap is cancelled meanwhile: half of either would
    leave a container that nobody knows.
Rule 3: the old engine's memory is waited for, not its exit: on a GB10 it has come back minutes later, and an engine
    that starts meanwhile miscounts what is free.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sparkdash.domain.container import LABEL_OWNER, ContainerInfo, ContainerSpec, with_marks
from sparkdash.domain.engine import Engine, EngineState, LoadProgress
from sparkdash.domain.event import Level
from sparkdash.domain.images import CopyPlan, CopyProgress, how_to_get, nearest_words
from sparkdash.domain.node import LOCAL, NodeLaunch
from sparkdash.domain.phrases import copy_share, copy_wait
from sparkdash.domain.profile import ModelRef, Profile
from sparkdash.domain.swap import Start, Step, SwapPhase
from sparkdash.engines import openai
from sparkdash.engines.containers import CACHE_TARGET, LaunchContext
from sparkdash.errors import EngineError, HostError, ProfileError
from sparkdash.host.compile_caches import KeptCache
from sparkdash.host.local_weights import find_weights, how_to_fix, may_exist
from sparkdash.host.thread import in_thread
from sparkdash.rules import refused_flag
from sparkdash.supervisor.decide.moves import Admitted, Copied, DrainOver, Evicted, Move, WontStop
from sparkdash.supervisor.engine_end import KILLED_S
from sparkdash.supervisor.memory import cache_eviction, large_blocks
from sparkdash.supervisor.memory.cache_eviction import BehindReader
from sparkdash.supervisor.memory.footprint import FootprintMeter
from sparkdash.supervisor.memory.read_ahead import ReadAhead
from sparkdash.supervisor.probe import served_model, version_of
from sparkdash.supervisor.state.registry import HeldMemory
from sparkdash.supervisor.state.swap_record import Steps, SwapRecord
from sparkdash.supervisor.swap import stopping
from sparkdash.supervisor.swap.attach import attach_server
from sparkdash.supervisor.swap.kept_kv import KeptKv, keeps_conversations
from sparkdash.supervisor.swap.load import Loading
from sparkdash.supervisor.tools import Tools

if TYPE_CHECKING:
    from sparkdash.nodes.shipping.shipper import NodeShipper


def launch_nodes(tools: Tools, nodes: tuple[str, ...]) -> tuple[NodeLaunch, ...]:
    """Return what a launch must know of its nodes; nothing for this box alone. Raises HostError."""
    return () if nodes == (LOCAL,) else tools.nodes.launch_on(nodes)


def launch_family(profile: Profile) -> str:
    """Return the key of launches that load about alike: the engine and the target model, else the profile."""
    target = profile.models.get("target")
    return f"{profile.engine.value} {target.ref if target else profile.name}"


def engine_container(tools: Tools, target: Profile, nodes: tuple[str, ...], image_id: str | None) -> ContainerSpec:
    """Build the container of `target` on these nodes. Raises HostError and ProfileError."""
    settings, on = tools.settings, launch_nodes(tools, nodes)
    given = {engine.port for engine in tools.registry.loading(but=target.name)}
    port = tools.ports.take(given)
    launch = LaunchContext(
        port=port,
        containerised=tools.runtime.containerised,
        hf_home=on[0].hf_home if on else str(settings.hf_home.expanduser()),
        cache_dir=on[0].cache_dir if on else str(settings.cache_dir.expanduser()),
        image_id=image_id if LOCAL in nodes else None,
        labels={LABEL_OWNER: tools.owner},
        nodes=on,
        master_port=tools.ports.take({*given, port}) if len(on) > 1 else 0,
    )
    spec = tools.adapter(target).launched(target, launch)
    return with_marks(spec, tools.owner)


async def check_start(tools: Tools, target: Profile, nodes: Collection[str], evict: Iterable[Engine]) -> str | None:
    """Check what speaks against a start. Raises HostError and AdmissionError.

    Returns:
        The id of the image on this box; None without it, empty for a process runtime.
    """
    image, runtime = target.image, tools.runtime
    image_id = await runtime.image_id(image) if runtime.containerised and image is not None else ""
    if LOCAL in nodes:
        await _check_here(tools, target, image_id, evict)
    return image_id


async def _check_here(tools: Tools, target: Profile, image_id: str | None, evict: Iterable[Engine]) -> None:
    image, runtime = target.image, tools.runtime
    if image_id is None:
        raise HostError(
            f"The image {image} of {target.name} is not on this box.", code="image_missing", hint=how_to_get(target)
        )
    hf_home = tools.settings.hf_home.expanduser()
    for ref in target.weights if runtime.containerised else target.used_models:
        if error := await asyncio.to_thread(_weights_fault, target, ref, hf_home, contained=runtime.containerised):
            raise error
    if wrong := refused_flag(target):
        raise ProfileError(
            f"{target.name} is not started: {'.'.join(map(str, wrong.path))}: {wrong.message}.",
            code="unknown_flag",
            hint=wrong.hint,
        )
    await large_blocks.check_before_stop(tools, target, [engine for engine in evict if LOCAL in engine.nodes])


def _weights_fault(target: Profile, ref: ModelRef, hf_home: Path, *, contained: bool) -> HostError | None:
    """Error for weights that are certainly not at their path, or that no engine can load. Reads the disk."""
    if ref.path and not Path(ref.path).is_absolute():
        return None
    if ref.path and not may_exist(Path(ref.path)):
        return HostError(
            f"The weights of {target.name} are not on this box: there is no {ref.path}.",
            code="weights_missing",
            hint=f"Put them there, or correct the path in the profile. {nearest_words(target)}".rstrip(),
        )
    found = find_weights(ref, hf_home, contained=contained)
    if not found.broken:
        return None
    return HostError(
        f"The weights of {target.name} cannot be loaded: {found.lacks} ({ref.ref}).",
        code="weights_missing",
        hint=how_to_fix(ref),
    )


TELL_S = 1.0


async def provide_nodes(
    tools: Tools, target: Profile, nodes: tuple[str, ...], record: SwapRecord, enter: Callable[[SwapPhase], None]
) -> None:
    """Copy to each other node what it lacks; several nodes must have the same. Raises HostError."""
    others = [node for node in nodes if node != LOCAL]
    if tools.shipper is None or not others:
        return
    before, teller = record.swap.phase, _Teller(tools, record, enter)
    for node in others:
        plan = await tools.shipper.plan(target, node, alike=len(nodes) > 1, on_progress=teller.progress)
        if plan.missing:
            await _copy(tools, tools.shipper, target, plan, teller)
    if record.swap.phase is SwapPhase.COPY:
        enter(before)


async def _copy(tools: Tools, shipper: "NodeShipper", target: Profile, plan: CopyPlan, teller: "_Teller") -> None:
    async with aclosing(shipper.copy(target, plan)) as reports:
        async for report in reports:
            teller.progress(report)
    for item in plan.missing:
        if item.replaces:
            node = plan.node
            text = (
                f"{node} had another image under the name {item.name} ({item.replaces[:12]}); this box's took its "
                f"place. The other one stays there without a name: `podman image prune` on {node} removes it."
            )
            tools.registry.notice(Level.WARNING, "image_replaced", text, target.name)


class _Teller:
    """Publishes a copy's progress once a second, and at once when its step changes."""

    def __init__(self, tools: Tools, record: SwapRecord, enter: Callable[[SwapPhase], None]) -> None:
        self._clock = tools.clock
        self._record = record
        self._enter = enter
        self._told: tuple[object, ...] = ()
        self._at = float("-inf")

    def progress(self, report: CopyProgress) -> None:
        now, step = self._clock.monotonic(), (report.node, report.name, report.step)
        if step == self._told and now - self._at < TELL_S:
            return
        self._told, self._at = step, now
        self._enter(SwapPhase.COPY)
        self._record.waits(copy_wait(report))
        share = copy_share(report)
        self._record.progress(LoadProgress(stage="copy", fraction=share, detail=copy_wait(report)))


CACHE_FAULTS = frozenset({"engine_crash", "no_progress", "bad_answer"})
"""Failures of a start that a torn or stale compile cache can cause; others have named causes."""


PORT_TRIES = 3
"""Ports that a start tries, one after the other."""


@dataclass(frozen=True, slots=True)
class AdoptableEngine:
    """A container that may be adopted."""

    container: ContainerInfo
    profile: Profile
    port: int
    version: str | None = None
    model_id: str | None = None
    """Name that a generic server lists for its model."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@dataclass
class Transition:
    """Carries one decision of the scheduler out. `phase` is where it is."""

    tools: Tools
    target: Profile | None
    evict: tuple[Engine, ...]
    record: SwapRecord
    nodes: tuple[str, ...]
    """Nodes of the target, the serving one first; empty without a target, and for one that is not ours."""
    tell: Callable[[Move], None]
    unwatch: Callable[[str], None]
    """From now on this profile's end is no accident."""
    resumes: AdoptableEngine | None
    """Container of the target that runs already: an earlier daemon started it and did not see it come up."""
    scale: FootprintMeter | None
    copies: bool
    """Whether the evicted engines serve on until the other nodes have what the target needs."""
    drain_until: float
    """Time at which requests that hold the evicted engines are cut, Unix seconds."""
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[Move] = field(init=False)
    phase: SwapPhase = field(init=False)

    def __post_init__(self) -> None:
        self.phase = self.record.swap.phase
        self._image_id: str | None = None
        """Id of the target's image on this box; empty for a process runtime."""
        self._cache: KeptCache | None = None
        self._caches_empty: bool | None = None
        self._stopping: list[str] = []
        """Profiles whose containers were told to end and still run."""
        self._stops_until = 0.0
        """Time at which these containers are killed, Unix seconds."""

    async def run(self) -> None:
        """All phases; on failure or cancellation what was begun is gone again. Raises SparkdashError."""
        target = self.target
        if target is not None and self.resumes:
            await self._go_on(target, self.resumes)
        elif target is not None and self.tools.adapter(target).managed:
            await self._replace(target)
        else:
            await self._drain()
            await self._stop()
            if target is not None:
                await self._reach(target)
            elif any(engine.container for engine in self.evict):
                self._enter(SwapPhase.RECLAIM)
                await stopping.after_stop(self.tools, self.record.waits)

    async def _replace(self, target: Profile) -> None:
        await self._look_ahead(target)
        ahead = ReadAhead(self.tools, target) if self.evict and LOCAL in self.nodes else nullcontext()
        async with ahead:
            await self._drain()
            await self._stop()
            await self._make_room(target)
        await self._bring_up_somehow(target)

    def _enter(self, phase: SwapPhase) -> None:
        self.phase = phase
        self.record.phase(phase)

    async def _look_ahead(self, target: Profile) -> None:
        """Rule 1: a start that cannot succeed evicts nobody."""
        began, self.phase = self.phase, SwapPhase.PREFLIGHT
        launch_nodes(self.tools, self.nodes)
        self._image_id = await check_start(self.tools, target, self.nodes, self.evict)
        if LOCAL in self.nodes:
            await self._check_launch(target)
        self.phase = began
        await provide_nodes(self.tools, target, self.nodes, self.record, self._enter)
        if self.copies:
            self.tell(Copied(target.name))

    async def _check_launch(self, target: Profile) -> None:
        """Look for what the runtime would refuse on this box: name, mounts, devices, program, a free port."""
        try:
            spec = engine_container(self.tools, target, self.nodes, self._image_id)
        except HostError as error:
            if error.code == "port_in_use" and any(engine.port for engine in self.evict):
                return  # theirs is free then
            raise
        waits_for = self.record.swap.waits_for
        if spec.prepare:
            self.record.waits(f"{spec.prepare[0]} to prepare {target.name}")
        await self.tools.runtime.check_start(spec)
        if spec.prepare:
            self.record.waits(waits_for)

    async def _drain(self) -> None:
        if self.drained.is_set():
            return
        tools = self.tools
        self.drain_until = tools.clock.now() + tools.settings.drain_s  # counted from now: the checks before took time
        if (waits_for := self.record.swap.waits_for) is not None:
            self.record.waits(waits_for, self.drain_until)
        timer = asyncio.create_task(self._drain_limit())
        try:
            await self.drained.wait()
        finally:
            timer.cancel()

    async def _drain_limit(self) -> None:
        await self.tools.clock.sleep(self.tools.settings.drain_s)
        self.tell(DrainOver(self.record.swap.target))

    async def _stop(self) -> None:
        registry = self.tools.registry
        here = [engine.profile for engine in self.evict if LOCAL in engine.nodes]
        left = [registry.started[name] for name in here if name in registry.started]
        if self.evict:
            self._enter(SwapPhase.STOP)
            await self.tools.begun.finish(self._end_all())
        if left and self.tools.settings.drop_page_cache:
            await cache_eviction.evict_after_stop(self.tools, left, comes=self.target)

    async def _end_all(self) -> None:
        """Stop all evicted engines at once: most of each stop is grace."""
        evict = self.evict
        for engine in evict:
            self.unwatch(engine.profile)
        await asyncio.gather(*map(self._save_conversations, evict))
        for engine in evict:
            self.tools.registry.move(engine.profile, EngineState.STOPPING)
        # measured before the first engine gives memory back: the debts count from this figure
        held = await asyncio.gather(*(stopping.measure_held_memory(self.tools, engine) for engine in evict))
        self._stopping = [engine.profile for engine in evict if engine.container]
        self._stops_until = self.tools.clock.now() + max(
            (stopping.grace_s(self.tools, e.profile) for e in evict), default=0.0
        )
        self._tell_stopping()
        ends = [self._end(engine, its) for engine, its in zip(evict, held, strict=True)]
        for ended in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _save_conversations(self, engine: Engine) -> None:
        profile = self.tools.registry.started.get(engine.profile)
        usable = engine.state.is_serving and engine.url
        if profile and usable and keeps_conversations(self.tools, profile, engine.nodes):
            self.record.waits(f"the conversations of {profile.name} to be saved")
            await KeptKv(self.tools, profile).save(usable)

    async def _end(self, engine: Engine, held: HeldMemory | None) -> None:
        try:
            await stopping.stop_engine(self.tools, engine, held)
        except HostError:
            self.tell(WontStop(engine.profile))
            raise
        finally:
            if engine.profile in self._stopping:
                self._stopping.remove(engine.profile)
                self._tell_stopping()
        self.tell(Evicted(engine.profile))

    def _tell_stopping(self) -> None:
        if self._stopping:
            self.record.waits(f"{' and '.join(self._stopping)} to end", self._stops_until)
        else:
            self.record.waits(None)

    async def _make_room(self, target: Profile) -> None:
        self._enter(SwapPhase.RECLAIM)
        tools, nodes, waits = self.tools, self.nodes, self.record.waits
        for node in nodes:
            await stopping.until_loads_leave_room(tools, target, node)
        missing = {node: await stopping.wait_for_memory(tools, target, waits, node) for node in nodes}
        self._enter(SwapPhase.PREFLIGHT)
        if LOCAL in nodes:  # page cache and large blocks are looked at on this box only
            await cache_eviction.evict_before_load(tools, target)
            if short := tools.guarded.short(target.name):
                raise short
            await large_blocks.ensure_blocks(tools, target, waits)
        await stopping.admit_load(tools, target, missing)

    async def _bring_up_somehow(self, target: Profile) -> None:
        """Start the target; if that fails as a bad compile cache lets it fail, once more without the cache."""
        try:
            await self._bring_up(target)
        except EngineError as error:
            kept = self._cache
            if kept is None or error.code not in CACHE_FAULTS or not await in_thread(kept.set_aside):
                raise
            text = f"{error.message} It is tried once more without its compile cache, {kept.folder}."
            self.tools.registry.notice(Level.WARNING, "cache_set_aside", text, target.name)
        else:
            return
        try:
            await self._make_room(target)
            await self._bring_up(target)
        except BaseException:
            await self.tools.begun.finish(in_thread(kept.put_back))
            raise
        await in_thread(kept.drop_aside)
        text = f"{target.name} starts without its compile cache: the cache was damaged, and is removed."
        self.tools.registry.notice(Level.WARNING, "cache_dropped", text, target.name)

    def _find_cache(self, target: Profile, spec: ContainerSpec) -> KeptCache | None:
        """Note the start in its compile cache; return the cache if this engine alone has it, and it holds something."""
        shared = [one for one in self.tools.registry.started.values() if one.name != target.name]
        here = [mount.source for mount in spec.mounts if mount.target == CACHE_TARGET and self.nodes == (LOCAL,)]
        for kept in map(KeptCache, map(Path, here)):
            kept.note_start()
            self._caches_empty = kept.was_empty
            if not kept.was_empty and not any(
                (one.image, one.models.get("target")) == (target.image, target.models.get("target")) for one in shared
            ):
                return kept
        return None

    async def _bring_up(self, target: Profile) -> None:
        tools = self.tools
        spec = engine_container(tools, target, self.nodes, self._image_id)
        if keeps_conversations(tools, target, self.nodes):
            await KeptKv(tools, target).prepare(self._image_id)
        self._cache = await in_thread(lambda: self._find_cache(target, spec))
        self._begin_start(target, spec)
        self._enter(SwapPhase.CREATE)
        if self.scale:
            await self.scale.before()
        began = tools.clock.monotonic()
        self._register(target, spec)
        # not before the engine is in the registry, so that other starts count its memory
        self.tell(Admitted(target.name))
        created = asyncio.ensure_future(self._create(target, spec))
        try:
            await self.tools.begun.finish(created)
            self._guard(target, created.result())
            url = tools.registry.engines[target.name].url or ""
            start = await self._load(target, spec.name, url)
            self.record.taken_apart(start)
            await self._ready(target, url, load_s=tools.clock.monotonic() - began)
        except BaseException:
            if created.exception() is None:  # a failed start left no container, and another owner's may have the name
                await self.tools.begun.finish(self._clean_up(target, spec.name))
            raise

    def _begin_start(self, target: Profile, spec: ContainerSpec) -> None:
        """Record what is known of the start, and which earlier ones found caches like its own."""
        store, image_id, empty = self.tools.store, self._image_id or None, self._caches_empty
        start = Start(
            stages=(),
            image_id=image_id,
            first_on_image=store.learned.is_first_on(image_id, launch_family(target)) if store and image_id else None,
            caches_empty=empty,
            io_uring=spec.seccomp is not None if spec.image else None,
        )
        self.record.begin_start(start, self._earlier(target, empty), self._earlier(target, not empty))

    def _earlier(self, target: Profile, caches_empty: bool | None) -> tuple[Steps, ...]:
        store, keys = self.tools.store, (target.fingerprint, launch_family(target))
        return next(filter(None, (store.learned.steps(key, caches_empty) for key in keys)), ()) if store else ()

    async def _create(self, target: Profile, spec: ContainerSpec) -> ContainerInfo:
        """Start the container, on the next port if a program has this one: of another node's ports nothing is known."""
        for _ in range(PORT_TRIES - 1):
            try:
                return await self.tools.runtime.start(spec)
            except HostError as error:
                if error.code != "port_in_use":
                    raise
            spec = engine_container(self.tools, target, self.nodes, self._image_id)
            self._register(target, spec)
        return await self.tools.runtime.start(spec)

    def _register(self, target: Profile, spec: ContainerSpec) -> None:
        url = f"http://127.0.0.1:{spec.port}"
        self.tools.registry.enter(
            target, EngineState.CREATING, port=spec.port, url=url, container=spec.name, nodes=self.nodes
        )

    async def _go_on(self, target: Profile, found: AdoptableEngine) -> None:
        """Continue a swap whose daemon died during the load: memory, name and port are taken already."""
        tools, name = self.tools, found.container.name
        nodes = found.container.nodes
        tools.registry.enter(
            target, EngineState.LOADING, port=found.port, url=found.url, container=name, nodes=nodes, adopted=True
        )
        self._guard(target, found.container)
        try:
            await self._load(target, name, found.url)
            self.record.taken_apart(None)  # nobody saw its beginning
            await self._ready(target, found.url)
        except BaseException:
            await self.tools.begun.finish(self._clean_up(target, name))
            raise

    async def _ready(
        self, target: Profile, url: str, *, load_s: float | None = None, model_id: str | None = None
    ) -> None:
        version = await version_of(self.tools, target, url)
        model_id = model_id or await served_model(self.tools, target, url)
        await self.tools.before_ready(target.name)
        self.tools.registry.ready(target.name, version=version, load_s=load_s, model_id=model_id)

    def _guard(self, target: Profile, container: ContainerInfo) -> None:
        """Hand the container to this box's memory guard. Other nodes have guards of their own."""
        if container.node == LOCAL:
            self.tools.guarded.add(target, container)

    async def _load(self, target: Profile, container: str, url: str) -> Start:
        tools = self.tools
        tools.logbook.open(target.name, container)
        self._enter(SwapPhase.LOAD)
        tools.registry.move(target.name, EngineState.LOADING)
        nodes = tools.registry.engines[target.name].nodes
        watched = Loading(tools, target, container, url, self.record, self.scale, nodes)
        reader = BehindReader(tools, target, container) if LOCAL in nodes else nullcontext()
        async with reader, watched as loading:
            await loading.until_alive()
            self._enter(SwapPhase.WARM)
            tools.registry.move(target.name, EngineState.WARMING)
            answer = await loading.warm()
            start = await loading.taken_apart()
            await self._compare_answer(target, loading, answer)
            return await self._with_conversations(target, url, loading, start)

    async def _with_conversations(self, target: Profile, url: str, loading: Loading, start: Start) -> Start:
        """Restore the conversations that the profile keeps; an engine that an earlier daemon started has none."""
        image_id = self._image_id
        kept = keeps_conversations(self.tools, target, self.nodes)
        if image_id is None or not kept or self.tools.adapter(target).writes_kv:
            return start
        began = self.tools.clock.monotonic()
        back = await loading.while_it_lives(KeptKv(self.tools, target).restore(url, image_id))
        step = Step(name="conversations", s=self.tools.clock.monotonic() - began)
        return start.replace(stages=(*start.stages, step), kv_back=back)

    async def _compare_answer(self, target: Profile, loading: Loading, answer: str | None) -> None:
        """Report a text that differs from that of the same launch's first start, if a second one differs too."""
        canaries, image_id = self.tools.canaries, self._image_id
        if canaries is None or image_id is None or not answer or self.nodes != (LOCAL,):
            return
        kept = await in_thread(
            lambda: canaries.kept(target, image_id, self.tools.settings.hf_home.expanduser(), answer)
        )
        if kept != answer and (again := await loading.warm()) != kept:
            text = f"{target.name} answers the warm-up with {again!r}; its first start answered {kept!r}."
            hint = "Image, weights and flags are the same, so it may be broken: ask it something that you know."
            self.tools.registry.notice(Level.WARNING, "answer_differs", f"{text} {hint}", target.name)

    async def _clean_up(self, target: Profile, container: str) -> None:
        killed = self.tools.guarded.killed(container)
        try:
            async with asyncio.timeout(KILLED_S if killed and killed.done() else None):
                await self.tools.logbook.close(target.name)
                stopping.report_leftovers(
                    self.tools.registry, target.name, await self.tools.runtime.stop(container, 0.0)
                )
        except TimeoutError:  # the engine is dead anyway, and its requests must not wait for a runtime that hangs
            why = f"as {self.tools.runtime.name} does not answer"
            text = f"{container} is dead and could not be removed, {why}. The next start removes it."
            self.tools.registry.notice(Level.WARNING, "runtime_timeout", text, target.name)
        except HostError as error:  # reported apart: the failure's reason is worth more than the clean-up's
            text = f"{container} is left over and cannot be removed: {error.text()}"
            self.tools.registry.notice(Level.ERROR, error.code, text, target.name)

    async def _reach(self, target: Profile) -> None:
        """An engine that is not ours: it answers, or it does not."""
        self._enter(SwapPhase.LOAD)
        self.tools.registry.enter(target, EngineState.LOADING, url=openai.root(target.url or ""))
        found = await attach_server(self.tools, target)
        await self._ready(target, found.url, model_id=found.model_id)


def first_phase(managed: bool, evict: tuple[Engine, ...]) -> SwapPhase:
    """Return the phase in which a swap begins, without phases that have nothing to do."""
    if evict:
        return SwapPhase.DRAIN
    return SwapPhase.RECLAIM if managed else SwapPhase.LOAD
