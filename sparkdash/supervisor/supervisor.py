"""Supervisor: the public face of this package, and the tasks that live as long as the actor."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from itertools import pairwise

from sparkdash.catalog import Catalog
from sparkdash.catalog.catalog import replica_names
from sparkdash.domain.container import ForeignContainer, PullProgress
from sparkdash.domain.engine import Engine, EngineState, IncidentList
from sparkdash.domain.event import Level
from sparkdash.domain.images import ImageOrigin, how_to_get, image_origin
from sparkdash.domain.memory import Need
from sparkdash.domain.profile import AUTO, Profile
from sparkdash.domain.request import Task
from sparkdash.domain.swap import Plan, SwapCause
from sparkdash.domain.weights import WeightFacts
from sparkdash.engines.probes import MetricNames
from sparkdash.engines.registry import adapter
from sparkdash.errors import HostError, ProfileError, SparkdashError
from sparkdash.host.runtime import Runtime
from sparkdash.settings import Settings
from sparkdash.supervisor.actor import Actor
from sparkdash.supervisor.decide import refusals
from sparkdash.supervisor.decide.moves import Arrive, Cancel, Preload, Release, Stop, Use
from sparkdash.supervisor.leasing import AnswerProgress, EngineLease, Lease, QueuePlace, not_started
from sparkdash.supervisor.probe import SignalReader, unreachable
from sparkdash.supervisor.swap import adopt, kept_kv, stopping
from sparkdash.supervisor.tools import Tools


async def fetch_image(runtime: Runtime, profile: Profile, image: str) -> AsyncIterator[PullProgress]:
    """Fetch the profile's image unless it is built here. Raises HostError, `image_missing` among others."""
    if image_origin(image, profile.build) is ImageOrigin.PULL:
        async for step in runtime.pull(image):
            yield step
    elif await runtime.image_id(image) is None:
        raise HostError(f"No registry has {image}.", code="image_missing", hint=how_to_get(profile))
    else:
        yield PullProgress(image=image, detail="here already", fraction=1.0, done=True)


class Supervisor:
    """Decides which engine runs and who may use it. Start `run()`, then lease."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self.catalog = tools.catalog
        self._actor = Actor(tools)
        if tools.figures is not None:
            tools.look = SignalReader(tools, self._actor.leasing.held, tools.figures).look
        self._group: asyncio.TaskGroup | None = None

    @property
    def engines(self) -> dict[str, Engine]:
        return dict(self._tools.registry.engines)

    async def run(self) -> None:
        """Run the actor until cancelled. Any other end is a fault of ours, and should end the daemon."""
        try:
            self._tools.guarded.open()
            self._actor.recall()
            async with asyncio.TaskGroup() as self._group:
                self._group.create_task(self._read_weights(), name="weights")
                await self._actor.run(self._group, self._preloads())
        finally:
            self._actor.end()
            self._tools.guarded.close()

    async def adopted(self) -> None:
        """Wait until engines of an earlier daemon have been looked for."""
        await self._actor.adopted.wait()

    def node_returned(self) -> None:
        """Look for engines of an earlier daemon again: a node that was silent can be asked now."""
        self._actor.takeover.look_again()

    async def settled(self) -> None:
        """Wait until nothing is under way: no move in the inbox, no swap. For tests."""
        await self._actor.idle.wait()

    def lease(
        self,
        name: str,
        *,
        request_id: str,
        on_wait: Callable[[QueuePlace], object],
        batch: bool = False,
        task: Task | None = None,
        client: str | None = None,
        progress: AnswerProgress | None = None,
        autocomplete: bool = False,
    ) -> AbstractAsyncContextManager[Lease]:
        """Wait for the engine that serves `name`, and hold it while the context lasts.

        `name` is what the client wrote: a profile, an alias, or `auto`; a remote one is granted at once.
        `on_wait(place)` is called whenever the place in the queue changes. `batch`: requests that somebody waits for
        go first. `autocomplete`: it evicts nobody, and is refused instead of waiting. `task` and `client` decide what
        `auto` is: the engine that this client, or else anybody, was last given for that task. `progress` tells,
        whenever the engine is looked at, when a byte of its answer last came.

        An UpstreamError that leaves the context has the engine examined first, so that a second try finds a living one.
        If the engine died, an error with the reason replaces the UpstreamError.

        Raises:
            AdmissionError: unknown, cannot run, queue full, too many at once, stopped or cancelled meanwhile, or it
                does not fit.
            EngineError: it did not come up.
            HostError: the box lacks something that it needs.
        """
        profile, leasing = None if name == AUTO else self.catalog.find(name), self._actor.leasing
        if profile is not None and profile.engine.is_remote:
            return leasing.remote_lease(profile, request_id, on_wait)
        claim = EngineLease(leasing, request_id, on_wait, progress)
        claim.arrival = Arrive(claim.ticket, profile.name if profile else None, batch, task, client, autocomplete)
        return claim

    async def sickness(self, profile: Profile, url: str) -> str | None:
        """Return why the profile's engine looks dead or broken; None when it is well or only slow."""
        return await unreachable(self._tools, profile, url, late_counts=False)

    async def use(self, name: str, *, cause: SwapCause) -> Plan:
        """Make a profile resident; return the plan, once running engines are known. Its replicas follow.

        Raises:
            AdmissionError: it is unknown, cannot run here, or would be refused.
        """
        profile = self._here(name)
        await self.adopted()
        plan, refused = await self._actor.plan(profile)
        if refused:
            raise refused
        self._actor.post(Use(profile.name, cause))
        if profile.replicas > 1 and cause is not SwapCause.BENCH and self._group is not None:
            self._group.create_task(self._bring_up_replicas(profile.name, cause), name=f"replicas {name}")
        return plan

    async def _bring_up_replicas(self, name: str, cause: SwapCause) -> None:
        """Restart outdated replicas one after the other, while the others serve; absent ones come where room is."""
        for before, replica in pairwise(replica_names(self.catalog.profiles, name)):
            await self._actor.idle.wait()
            if self._is_outdated(before):
                return  # its new version did not come up
            self._actor.post(Use(replica, cause) if self._is_outdated(replica) else Preload((replica,)))

    def _is_outdated(self, name: str) -> bool:
        engine, profile = self._tools.registry.engines.get(name), self.catalog.profiles.get(name)
        if engine is None or profile is None:
            return False
        return engine.state is EngineState.FAILED or engine.fingerprint != profile.fingerprint

    async def plan(self, name: str) -> Plan:
        """Describe what `use` would do, and why. Raises AdmissionError when it is unknown or cannot run here."""
        profile = self._here(name)
        await self.adopted()
        return (await self._actor.plan(profile))[0]

    async def stop(self, name: str | None, *, wait: bool = True, cause: SwapCause = SwapCause.USER) -> None:
        """Stop one profile's engine with its replicas, or all, and return when they are gone.

        Raises AdmissionError and HostError.
        """
        registry, profile = self._tools.registry, name
        if name is None or (name in registry.unadopted and name not in registry.engines):
            await self._end_unadopted(name, wait=wait)
            if name is not None:
                return
        elif name not in registry.engines:
            profile = self._here(name).name
        names = registry.engines if profile is None else self._with_replicas(profile)
        self._actor.swaps.stop_causes.update(dict.fromkeys(names, cause))
        orders = [Stop(None)] if profile is None else list(map(Stop, names))
        if wait:
            await asyncio.gather(*map(self._actor.ask, orders))
        else:
            for order in orders:
                self._actor.post(order)

    async def _end_unadopted(self, name: str | None, *, wait: bool) -> None:
        ending = self._actor.takeover.end_unadopted(name)
        if wait or self._group is None:
            await ending
        else:
            self._group.create_task(ending, name="end unadopted")

    def _with_replicas(self, name: str) -> tuple[str, ...]:
        known = dict.fromkeys((name, *self.catalog.profiles, *self._tools.registry.engines))
        return replica_names(known, name)

    async def cancel(self) -> None:
        """Give up the swap under way; returns when what it had begun is cleaned away. Nothing happens without one."""
        await self._actor.ask(Cancel())

    def need(self, profile: Profile) -> Need:
        return self._tools.needs(profile)

    def target(self, profile: Profile) -> WeightFacts | None:
        return self._tools.needs.target(profile)

    def sees(self, profile: Profile) -> bool | None:
        """Whether a launch reads pictures; None is not known. `on_needs` is called when more is."""
        return self._tools.adapter(profile).reads_images(profile, self.target(profile))

    async def release(self, name: str | None) -> None:
        """Let a parked profile, or all of them, start again. Raises AdmissionError: unknown profile."""
        self._actor.post(Release(None if name is None else self.catalog.find(name).name))

    async def extend_load(self, name: str) -> None:
        """Let a load that stands still do so for its whole limit from now on. Raises AdmissionError (`not_stalled`)."""
        profile = self.catalog.find(name).name
        if not self._actor.swaps.extend(profile):
            raise refusals.not_stalled(profile)

    def replace_catalog(self, catalog: Catalog) -> None:
        """Replace the profiles. Running engines go on, also when their profile changed or went away."""
        self.catalog = catalog
        self._actor.replace_catalog(catalog)
        if self._group and not self._actor.leasing.over:
            self._group.create_task(self._read_weights(), name="weights")

    @property
    def settings(self) -> Settings:
        return self._tools.settings

    def replace_settings(self, settings: Settings) -> None:
        """Replace the settings; they hold from the next decision on."""
        self._tools.settings = settings
        self._tools.guarded.apply_settings(settings)
        self._actor.replace_settings(settings)
        self.replace_catalog(self.catalog)  # policies are the profiles'

    async def pids(self, profile: str) -> set[int]:
        engine = self._tools.registry.engines.get(profile)
        return await self._tools.runtime.pids(engine.container) if engine and engine.container else set()

    async def foreign_containers(self) -> dict[ForeignContainer, set[int]]:
        """Return foreign containers that take what our engines need, with host process ids. Raises HostError."""
        return await adopt.find_foreign(self._tools)

    def incidents(self) -> IncidentList:
        return self._actor.incidents.list

    def logs(self, name: str, *, tail: int | None = None, follow: bool = False) -> AsyncIterator[str]:
        """Return the engine's log: from its container, else its last lines. Raises AdmissionError."""
        profile = name if name in self._tools.registry.engines else self.catalog.find(name).name
        return self._tools.logbook.read(profile, tail=tail, follow=follow)

    async def pull(self, name: str) -> AsyncIterator[PullProgress]:
        """Fetch a profile's image. Raises AdmissionError, ProfileError (it has none) and HostError."""
        profile = self.catalog.find(name)
        if error := refusals.nothing_to_pull(profile, containerised=self._tools.runtime.containerised):
            raise error
        if profile.image is None:
            raise ProfileError(
                f"Profile {profile.name} names no image.", code="image_missing", hint="Add `image:` to it."
            )
        async for step in fetch_image(self._tools.runtime, profile, profile.image):
            yield step
        await self._tools.needs.read([profile])
        self._actor.post(Release(profile.name))

    def retire(self, *, cut: bool) -> None:
        """Refuse new and waiting requests, as the daemon ends; with `cut` end every lease too. Idempotent."""
        self._actor.leasing.retire(cut=cut)

    def give_up(self) -> None:
        """Leave stops and starts under way to the next daemon: the runtime hangs, and this one must end."""
        self._tools.begun.give_up()

    async def close(self, *, stop_engines: bool = False) -> None:
        """After `run` has ended. Engines are left for the next daemon to adopt, unless told otherwise."""
        if stop_engines:
            await stopping.stop_all_engines(self._tools)

    def metric_names(self, engine: Engine) -> MetricNames:
        profile = self._tools.registry.started.get(engine.profile)
        return self._tools.adapter(profile).metrics if profile else adapter(engine.kind).metrics

    async def _read_weights(self) -> None:
        await self._tools.needs.read(self.catalog.profiles.values())
        self._tools.on_needs()
        if not self.catalog.problems:  # a file that cannot be read may be of a profile that keeps some
            await kept_kv.remove_unwanted(self._tools)

    def _preloads(self) -> Iterator[str]:
        for name in self._tools.settings.preload:
            try:
                yield self._here(name).name
            except SparkdashError as error:
                self._tools.registry.notice(Level.WARNING, error.code, f"`preload` in config.toml: {error.text()}")

    def _here(self, name: str) -> Profile:
        """Raises AdmissionError: unknown, or a service elsewhere."""
        profile = self.catalog.find(name)
        if profile.engine.is_remote:
            raise not_started(profile)
        return profile
