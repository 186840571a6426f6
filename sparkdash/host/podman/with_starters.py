"""Podman beside engines that other programs start: those are processes of this box, watched like any other engine."""

from collections.abc import AsyncIterator, Awaitable, Mapping

from sparkdash import paths
from sparkdash.domain.container import ContainerInfo, ContainerSpec, Leftovers
from sparkdash.host.podman.podman import Podman
from sparkdash.host.processes.process import Process
from sparkdash.host.runtime import Runtime


def runtime_called(program: str) -> Runtime:
    """Make the runtime of that name: podman, docker or process."""
    processes = processes_of_daemon()
    return processes if program == processes.name else WithStarters(program, processes)


def processes_of_daemon() -> Process:
    return Process(paths.state_dir() / "processes")


class WithStarters(Podman):
    """Podman for profiles with an image. What a starter runs has none, and goes to the process runtime."""

    def __init__(self, program: str, processes: Process) -> None:
        super().__init__(program)
        self._processes = processes

    async def command(self, spec: ContainerSpec) -> list[str]:
        return await (super().command(spec) if spec.image else self._processes.command(spec))

    async def check_start(self, spec: ContainerSpec) -> None:
        await (super().check_start(spec) if spec.image else self._processes.check_start(spec))

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        if spec.image:
            await self._processes.stop(spec.name, 0.0)
            return await super().start(spec)
        await super().stop(spec.name, 0.0)
        return await self._processes.start(spec)

    async def stop(self, name: str, grace_s: float, before_removal: Awaitable[None] | None = None) -> Leftovers:
        if self._processes.holds(name):
            return await self._processes.stop(name, grace_s, before_removal)
        return await super().stop(name, grace_s, before_removal)

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        return [*await self._processes.containers(labels), *await super().containers(labels)]

    def logs(self, name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        if self._processes.holds(name):
            return self._processes.logs(name, follow=follow, tail=tail)
        return super().logs(name, follow=follow, tail=tail)

    async def wait(self, name: str) -> int:
        return await (self._processes.wait(name) if self._processes.holds(name) else super().wait(name))

    async def pids(self, name: str) -> set[int]:
        return await (self._processes.pids(name) if self._processes.holds(name) else super().pids(name))

    async def _inspect(self, names: list[str]) -> list[ContainerInfo]:
        found = [each for name in names if (each := await self._processes.inspect(name))]
        others = [name for name in names if not self._processes.holds(name)]
        return found + (await super()._inspect(others) if others else [])
