"""A runtime in memory, whose engines listen on real ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from sparkdash.domain.container import ContainerInfo, ContainerSpec, ContainerState, Leftovers, PullProgress
from sparkdash.errors import HostError
from surroundings.clock import FakeClock
from surroundings.engines import Behaviour, Container, pid_of, serve_engine


class FakeRuntime:
    """Containers in memory; each engine that comes up listens on its real port."""

    name = "podman"
    containerised = True

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.here: dict[str, Container] = {}
        self.zoo: dict[str, Behaviour] = {}
        """By image, else by profile."""
        self.present = {"image"}
        self.missing = False
        self.refuses: dict[str, HostError] = {}
        """Errors that keep a profile from its start."""
        self.gate: asyncio.Event | None = None
        """Starts and stops take until it is set."""
        self.pid: int | None = None
        """Told as every container's."""
        self.stopped: set[str] = set()
        self.stray = Leftovers()
        self.out_of_reach = False
        """Stops do nothing: the daemon that would stop is dead."""
        self.deaf = False
        """Followers of a log lose it at once."""
        self.calls: list[tuple[str, str]] = []
        """(start or stop, profile) in order."""

    async def version(self) -> str:
        return "5.0"

    async def image_id(self, image: str) -> str | None:
        self._must_be_there()
        return f"id of {image}" if image in self.present else None

    async def images(self, names: Collection[str]) -> dict[str, int]:
        self._must_be_there()
        return dict.fromkeys(self.present & set(names), 1)

    async def pull(self, image: str) -> AsyncIterator[PullProgress]:
        self.present.add(image)
        yield PullProgress(image=image, detail="pulled", done=True)

    async def command(self, spec: ContainerSpec) -> list[str]:
        return list(spec.argv)

    async def check_start(self, spec: ContainerSpec) -> None:
        if error := self.refuses.get(spec.labels["sparkdash.profile"]):
            raise error

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        await self._pass()
        behaviour = self.zoo.get(spec.image) or self.zoo.get(spec.labels["sparkdash.profile"], Behaviour())
        container = Container(spec, behaviour, self.clock.now())
        self.calls.append(("start", container.profile))
        self.here[spec.name] = container
        container.life = asyncio.create_task(self._live(container))
        return self._info(container)

    async def stop(self, name: str, grace_s: float, before_removal: Awaitable[None] | None = None) -> Leftovers:
        container = self.here.get(name)
        if container is None or self.out_of_reach:
            return Leftovers()
        if container.behaviour.wont_stop:
            raise HostError(f"{name} does not end.", code="unkillable")
        await self._pass()
        if container.state is ContainerState.RUNNING:
            self.calls.append(("stop", container.profile))
            self.stopped.add(container.profile)
            await self.end(container, 143)
        if before_removal is not None:
            await before_removal
        self.here.pop(name, None)
        return container.behaviour.leftovers

    async def inspect(self, name: str) -> ContainerInfo | None:
        return self._info(self.here[name]) if name in self.here else None

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        self._must_be_there()
        found = [c for c in self.here.values() if all(c.spec.labels.get(k) == v for k, v in labels.items())]
        return [self._info(container) for container in found]

    async def settle(self, owner: str) -> Leftovers:
        return self.stray

    async def logs(self, name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        if name not in self.here:
            raise HostError(f"There is no container {name}.", code="no_such_container")
        container = self.here[name]
        if follow and self.deaf:
            return
        at = 0 if tail is None else max(0, len(container.log) - tail)
        while True:
            while at < len(container.log):
                at += 1
                yield container.log[at - 1]
            if not follow or container.ended.is_set():
                return
            container.changed.clear()
            await container.changed.wait()

    async def wait(self, name: str) -> int:
        container = self.here.get(name)
        if container is None:
            return -1
        await container.ended.wait()
        return container.exit_code or 0

    async def pids(self, name: str) -> set[int]:
        return {pid_of(self.here[name].profile)} if name in self.here else set()

    def kill(self, profile: str, *words: str) -> Awaitable[None]:
        container = self.of(profile)
        for line in words:
            container.say(line)
        return self.end(container, 1)

    async def remove(self, profile: str) -> None:
        """Somebody else takes its container away: `podman rm -f`."""
        container = self.here.pop(self.of(profile).spec.name)
        await self.end(container, 137)

    pid_of = staticmethod(pid_of)

    def of(self, profile: str) -> Container:
        return next(c for c in self.here.values() if c.profile == profile)

    def running(self) -> list[str]:
        return [c.profile for c in self.here.values() if c.state is ContainerState.RUNNING]

    async def end(self, container: Container, code: int) -> None:
        container.state, container.exit_code = ContainerState.EXITED, code
        if container.life and container.life is not asyncio.current_task():
            container.life.cancel()
            with suppress(asyncio.CancelledError):
                await container.life
        if container.server:
            await container.server.cleanup()
        container.ended.set()
        container.changed.set()

    async def close(self) -> None:
        for container in self.here.values():
            await self.end(container, 0)

    async def _live(self, container: Container) -> None:
        does = container.behaviour
        for line in does.lines:
            container.say(line)
        while does.never_ready:
            await self.clock.sleep(1.0)
            if does.heartbeat:
                container.say(f"waiting, {self.clock.time} s")
        if does.dies_after_s is not None:
            await self.clock.sleep(does.dies_after_s)
            container.say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 GiB")
            await self.end(container, 1)
            return
        await self.clock.sleep(does.load_s)
        if does.dies_of_cache and _has_cache(container.spec):
            await self.end(container, 139)
            return
        container.server = await serve_engine(container.profile, container.spec.port, does=does)

    def _info(self, c: Container) -> ContainerInfo:
        return ContainerInfo(
            id=c.spec.name,
            name=c.spec.name,
            state=c.state,
            image=c.spec.image,
            labels=c.spec.labels,
            exit_code=c.exit_code,
            pid=self.pid,
            started_at=c.started_at,
        )

    async def _pass(self) -> None:
        if self.gate:
            await self.gate.wait()

    def _must_be_there(self) -> None:
        if self.missing:
            raise HostError("podman cannot be run.", code="runtime_missing", hint="Install podman.")


def _has_cache(spec: ContainerSpec) -> bool:
    return any(any(Path(mount.source).glob("*")) for mount in spec.mounts if not mount.read_only)
