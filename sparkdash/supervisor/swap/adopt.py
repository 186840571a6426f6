"""Containers that are there already: ours of an earlier daemon are adopted or removed; foreign ones are only shown."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, repeat

from sparkdash.catalog import Catalog, ProfileProblem
from sparkdash.domain.container import (
    LABEL_FINGERPRINT,
    LABEL_HEAD,
    LABEL_OWNER,
    LABEL_PORT,
    LABEL_PROFILE,
    ContainerInfo,
    ContainerState,
    ForeignContainer,
)
from sparkdash.domain.engine import EngineState
from sparkdash.domain.event import Level
from sparkdash.domain.node import LOCAL
from sparkdash.domain.profile import OnStuck, Profile
from sparkdash.errors import SparkdashError
from sparkdash.host.processes import leftovers
from sparkdash.settings import Settings
from sparkdash.supervisor.decide.moves import Adopted
from sparkdash.supervisor.decide.records import SchedulerRecords
from sparkdash.supervisor.probe import served_model, unreachable, version_of, work_fault
from sparkdash.supervisor.state.registry import lines_of
from sparkdash.supervisor.swap.stopping import report_leftovers
from sparkdash.supervisor.swap.tasks import SwapTasks
from sparkdash.supervisor.swap.transition import AdoptableEngine
from sparkdash.supervisor.tools import Tools

AGAIN_S = (5.0, 10.0, 20.0, 60.0)
"""Pauses before a runtime that did not tell what is there is asked again; the last one repeats."""
TRIES = 3
"""Probes before an engine that was up and does not answer is given up: it may be busy."""
PAUSE_S = 1.0
ANSWER_S = 10.0
"""Limit of the short generation that an engine is adopted by."""
LOG_S = 5.0
"""Limit of reading an engine's log for whether it ever came up."""


@dataclass(frozen=True, slots=True)
class Adoption:
    """Containers of an earlier daemon, by what becomes of them."""

    ready: tuple[AdoptableEngine, ...] = ()
    """Runs and generates; in the order of their starts."""
    loading: tuple[AdoptableEngine, ...] = ()
    """Engines whose swaps are still to be completed."""
    unknown: tuple[ContainerInfo, ...] = ()
    """Running containers whose profiles may be in unreadable files: decided on when those are read again."""
    problems: tuple[ProfileProblem, ...] = ()
    """Problems of those files at the time of the look."""


async def find_engines(tools: Tools, stuck: Collection[str] = ()) -> Adoption:
    """Find engines to adopt, and remove our other containers. `stuck` ones must generate. Raises HostError."""
    catalog = tools.catalog
    report_leftovers(tools.registry, "An engine of an earlier daemon", await tools.runtime.settle(tools.owner))
    ready: list[AdoptableEngine] = []
    unknown: list[ContainerInfo] = []
    loading: list[AdoptableEngine] = []
    for container in await _unknown_containers(tools):
        found: AdoptableEngine | str = _match(catalog, container)
        if found is _NO_PROFILE and catalog.problems:
            unknown.append(container)
            continue
        if isinstance(found, str):
            await _remove_unknown(tools, container, found)
        elif (why := await _unfit(tools, found, stuck)) is None:
            ready.append(await _with_facts(tools, found))
        elif why is _LOADING and all(one.profile != found.profile for one in loading):
            loading.append(found)
        else:
            await _remove_unknown(tools, container, why)
    return Adoption(tuple(reversed(ready)), tuple(reversed(loading)), tuple(unknown), catalog.problems)


async def _with_facts(tools: Tools, found: AdoptableEngine) -> AdoptableEngine:
    version, model_id = await version_of(tools, found.profile, found.url), None
    with suppress(SparkdashError):
        model_id = await served_model(tools, found.profile, found.url)
    return replace(found, version=version, model_id=model_id)


async def _unknown_containers(tools: Tools) -> list[ContainerInfo]:
    """Containers with our label that are not registered, youngest first; a list takes seconds on a busy box."""
    known = {engine.container for engine in tools.registry.engines.values()}
    listed = await tools.runtime.containers({LABEL_OWNER: tools.owner})
    ours = [each for each in listed if each.name not in known and not is_registered(tools, each)]
    return sorted(ours, key=lambda c: c.started_at or 0.0, reverse=True)


def is_registered(tools: Tools, container: ContainerInfo) -> bool:
    return any(engine.container == container.name for engine in tools.registry.engines.values())


async def find_engines_again(
    tools: Tools, stuck: Collection[str] = (), *, first_pause_s: float = AGAIN_S[0]
) -> Adoption:
    """Repeat `find_engines` until the runtime answers: engines of an earlier daemon hold memory."""
    for pause_s in chain((first_pause_s,), AGAIN_S[1:], repeat(AGAIN_S[-1])):
        await tools.clock.sleep(pause_s)
        with suppress(SparkdashError):
            return await find_engines(tools, stuck)
    raise AssertionError  # the pauses have no end


_NO_PROFILE = "its profile is no longer there"
_LOADING = "a younger engine of its profile loads"
"""Reason for removing a second engine that has not come up; of the youngest it means that it loads."""


async def _unfit(tools: Tools, found: AdoptableEngine, stuck: Collection[str]) -> str | None:
    """Why it cannot be adopted as ready; None when it answers and generates, or was stuck and is not ours to end."""
    was_stuck = found.profile.name in stuck
    if was_stuck and found.profile.on_stuck is OnStuck.TELL:
        return None
    silent = await unreachable(tools, found.profile, found.url)
    if silent and not await _was_up(tools, found):
        return _LOADING
    for _ in range(TRIES - 1):
        if not silent:
            break
        await tools.clock.sleep(PAUSE_S)
        silent = await unreachable(tools, found.profile, found.url)
    if silent:
        return f"it does not answer ({silent})"
    if not await work_fault(tools, found.profile, found.url, limit_s=ANSWER_S):
        return None
    return "it was stuck, and still generates nothing" if was_stuck else _LOADING


async def _was_up(tools: Tools, found: AdoptableEngine) -> bool:
    """Whether the engine's log says that it served once. An unreadable log says nothing."""
    adapter = tools.adapter(found.profile)
    with suppress(SparkdashError, TimeoutError):
        async with asyncio.timeout(LOG_S), lines_of(tools.runtime, found.container.name, follow=False) as lines:
            async for line in lines:
                progress = adapter.read_log(line)
                if progress is not None and progress.stage == "ready":
                    return True
    return False


def adopt_engine(tools: Tools, found: AdoptableEngine) -> None:
    profile, container = found.profile, found.container
    tools.registry.enter(
        profile,
        EngineState.READY,
        port=found.port,
        url=found.url,
        container=container.name,
        nodes=container.nodes,
        adopted=True,
        ready_at=container.started_at or tools.clock.now(),
        version=found.version,
        model_id=found.model_id,
    )
    if container.node == LOCAL:
        tools.guarded.add(profile, container)
    tools.logbook.adopt(profile.name, container.name)


def report_unadoptable(tools: Tools, container: ContainerInfo, problems: Sequence[ProfileProblem]) -> None:
    """Tell of one that is unknown why nothing is done with it."""
    name = container.labels.get(LABEL_PROFILE, container.name)
    text = (
        f"{container.name} runs, and the profile {name} is not among those that can be read. It is left alone "
        "until the files with problems are fixed, and then adopted or ended; "
        f"`sparkdash stop {name}` ends it now. {problems[0]}"
    )
    tools.registry.notice(Level.WARNING, "not_adopted_yet", text, name)


def _match(catalog: Catalog, container: ContainerInfo) -> AdoptableEngine | str:
    labels = container.labels
    if LABEL_HEAD in labels:
        return f"the engine that it computed for, {labels[LABEL_HEAD]}, is gone"
    if container.state is not ContainerState.RUNNING:
        return "it has ended"
    written = catalog.profiles.get(labels.get(LABEL_PROFILE, ""))
    if written is None:
        return _NO_PROFILE
    profile = written.on(len(container.nodes))
    if labels.get(LABEL_FINGERPRINT) != profile.fingerprint:
        return "its profile has changed since"
    port = labels.get(LABEL_PORT, "")
    return AdoptableEngine(container, profile, int(port)) if port.isdecimal() else "it does not tell its port"


async def _remove_unknown(tools: Tools, container: ContainerInfo, why: str) -> None:
    """Remove a container, unless it was started meanwhile, or has replaced the one that was listed."""
    if not is_registered(tools, container):
        await remove_container(tools, container, why)


async def remove_container(tools: Tools, container: ContainerInfo, why: str) -> bool:
    """Stop and remove a container that is not adopted; False: that failed, and is reported."""
    name = container.labels.get(LABEL_PROFILE)
    running = container.state is ContainerState.RUNNING
    try:
        left = await tools.runtime.stop(container.name, tools.settings.stop_grace_s)
    except SparkdashError as error:
        text = f"{container.name} is left over and cannot be removed: {error.text()}"
        tools.registry.notice(Level.ERROR, error.code, text, name)
        return False
    report_leftovers(tools.registry, name or container.name, left)
    if running:
        tools.registry.gone(name or container.name, nodes=container.nodes)
        text = f"{container.name} was running and has been stopped: {why}."
        tools.registry.notice(Level.WARNING, "not_adopted", text, name)
    return True


async def find_foreign(tools: Tools) -> dict[ForeignContainer, set[int]]:
    """Return the foreign containers that run now, with host process ids. Raises HostError when the runtime fails."""
    here = await tools.runtime.containers({})
    found = {each.id: one for each in here if (one := as_foreign(each, tools.owner, tools.settings))}
    pids = await asyncio.to_thread(leftovers.processes_in_containers, found.keys()) if found else {}
    return {one: pids[id_] for id_, one in found.items()}


def as_foreign(container: ContainerInfo, owner: str, settings: Settings) -> ForeignContainer | None:
    """Describe a foreign container that uses the GPU or our ports; None for any other."""
    if container.state is not ContainerState.RUNNING or container.labels.get(LABEL_OWNER) == owner:
        return None
    first, last = settings.engine_ports
    ports = tuple(port for port in container.ports if first <= port <= last or port == settings.port)
    if not (LABEL_PROFILE in container.labels or container.gpu or ports):
        return None
    return ForeignContainer(name=container.name, image=container.image, gpu=container.gpu, ports=ports)


@dataclass(kw_only=True, eq=False)
class Takeover:
    """Takes over engines of an earlier daemon; `tell` posts an Adoption that is found later."""

    tools: Tools
    records: SchedulerRecords
    swaps: SwapTasks
    stuck: Collection[str]
    adopted: Callable[[Adopted, Profile], None]
    tell: Callable[[Adoption], None]

    def __post_init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._is_looking = False
        """Whether a look is under way, or a task looks again."""
        self._is_late = False
        self._unknown: frozenset[str] = frozenset()
        """Containers that an earlier daemon left, whose profiles may be in files that cannot be read."""

    async def look(self, group: asyncio.TaskGroup) -> bool:
        """Take engines over now, or later if the runtime fails; two looks at a time would find the same engine."""
        self._group = group
        self._is_looking = True
        try:
            self.take_over(await find_engines(self.tools, self.stuck))
        except SparkdashError as error:
            text = f"Engines that may run already are not known yet: {error.text()}"
            self.tools.registry.notice(Level.ERROR, error.code, text)
            self._look_later()
            return False
        return True

    def catalog_read(self) -> None:
        """Look again where the profiles of unknown engines may be readable now."""
        if self._unknown and not self._is_looking and self._group:
            self._look_later()

    def look_again(self) -> None:
        """Look once more: a node that was silent may have engines of an earlier daemon."""
        if self._is_looking:
            self._is_late = True
        elif self._group:
            self._look_later(0.0)

    def take_over(self, adoption: Adoption) -> None:
        """Make the engines ours. An engine that was started meanwhile has replaced the one of its profile."""
        self._is_looking = False
        self._leave_unknown(adoption)
        for found in adoption.ready:
            name = found.profile.name
            if name not in self.records.residents and name not in self.records.swaps:
                adopt_engine(self.tools, found)
                self.adopted(Adopted(name, self._fingerprint(found), nodes=found.container.nodes), found.profile)
        if self._is_late:
            self._is_late = False
            self.look_again()
        busy = bool(self.records.swaps)
        for late in adoption.loading:
            if not busy and late.profile.name not in self.records.residents:
                self.swaps.resumes = late
                move = Adopted(late.profile.name, self._fingerprint(late), ready=False, nodes=late.container.nodes)
                self.adopted(move, late.profile)
            elif not is_registered(self.tools, late.container) and not self.swaps.continues(late.container.name):
                work = remove_container(self.tools, late.container, "another engine is being started")
                self._running().create_task(work, name=f"remove {late.container.name}")

    def _fingerprint(self, found: AdoptableEngine) -> str:
        """Return the fingerprint by which the scheduler knows the profile, on however many nodes it was started."""
        known = self.records.profiles.get(found.profile.name)
        return known.fingerprint if known else found.profile.fingerprint

    async def end_unadopted(self, name: str | None) -> None:
        """End the engine that was not adopted because its profile cannot be read; None: all such engines."""
        registry = self.tools.registry
        for profile, container in list(registry.unadopted.items()):
            if name in (None, profile) and await remove_container(self.tools, container, "it was to be stopped"):
                registry.forget_unadopted(profile)
        self.tools.guarded.refresh()

    def _leave_unknown(self, adoption: Adoption) -> None:
        for container in adoption.unknown:
            if container.name not in self._unknown:
                report_unadoptable(self.tools, container, adoption.problems)
        self._unknown = frozenset(container.name for container in adoption.unknown)
        self.tools.registry.leave_unadopted(
            {each.labels.get(LABEL_PROFILE, each.name): each for each in adoption.unknown}
        )
        if self._unknown and adoption.problems != self.tools.catalog.problems:  # read during the look
            self._look_later()

    def _look_later(self, pause_s: float = AGAIN_S[0]) -> None:
        self._is_looking = True

        async def look() -> None:
            self.tell(await find_engines_again(self.tools, self.stuck, first_pause_s=pause_s))

        self._running().create_task(look(), name="look again")

    def _running(self) -> asyncio.TaskGroup:
        assert self._group  # noqa: S101 - `look` comes first
        return self._group
