"""Podman: engines as containers, through the command line of podman or docker.

`argv` makes the command lines, `answers` reads the output. The command line is used rather than the socket: it needs no
service, is the same in 4.3 and 5, and a person can repeat it by hand.
"""

import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping
from contextlib import suppress

from sparkdash.domain.container import (
    ENV_MARK,
    LABEL_HEAD,
    LABEL_OWNER,
    LABEL_PROFILE,
    ContainerInfo,
    ContainerSpec,
    ContainerState,
    Leftovers,
    PullProgress,
    engine_mark,
)
from sparkdash.errors import HostError
from sparkdash.host import meminfo
from sparkdash.host.command import CommandResult, stdout_lines
from sparkdash.host.podman import answers, argv, podman_host
from sparkdash.host.podman.podman_host import PodmanHost
from sparkdash.host.processes import ending, leftovers
from sparkdash.host.processes.leftovers import Births
from sparkdash.host.thread import in_thread

LOOK_S = 20.0
"""Deadline of calls that only read. They take 0.05 s on an idle box."""
LIST_S = 3.0
"""Deadline of the look at all images, which is optional in a list that a person waits for."""
START_S = 180.0
"""Deadline of `run`. A rootless first start of a 20 GB image may copy its layers to change their owner."""
ENDED_S = 60.0
"""Deadline of `wait` for a container whose process has ended."""
PULL_SILENCE_S = 3600.0
"""Longest silence of a pull. Without a terminal podman is silent during a layer: 20 GB at 6 MB/s."""

LATE_S = 20.0
"""Time for `stop` beyond its grace; then the processes are killed directly."""
REMOVE_S = 60.0
UNPAUSE_S = 10.0

UNKNOWN_EXIT = -1
"""Exit code of a container that was removed before it was read."""


class Podman:
    """Runtime of podman, and of docker, which takes nearly the same command lines."""

    containerised = True

    def __init__(self, program: str = argv.PODMAN, host: PodmanHost | None = None) -> None:
        self.name = program
        self._host = host or PodmanHost()
        self._known: dict[str, ContainerInfo] = {}
        """Containers as last seen, by name, for when podman no longer answers."""

    async def version(self) -> str:
        done = await self._call(argv.version(self.name), LOOK_S)
        if done.code:
            raise answers.runtime_missing(self.name, answers.last_words(done.err))
        return done.out.strip()

    async def image_id(self, image: str) -> str | None:
        done = await self._call(argv.image_id(self.name, image), LOOK_S)
        if done.code and not answers.no_such_image(done.err):
            raise answers.failed(self.name, "image", done.err, done.code)
        return None if done.code else done.out.strip()

    async def images(self, names: Collection[str]) -> dict[str, int]:
        if not names:
            return {}
        done = await self._call(argv.images(self.name, names), LIST_S)
        if done.code and not answers.no_such_image(done.err):
            raise answers.failed(self.name, "image", done.err, done.code)
        return answers.images(done.out, names)

    async def pull(self, image: str) -> AsyncIterator[PullProgress]:
        """Fetch an image. Without a terminal neither program reports its progress: `fraction` stays None."""
        said: deque[str] = deque(maxlen=5)
        try:
            async with self._host.commands.child(argv.pull(self.name, image)) as process:
                async for line in stdout_lines(process, silence_s=PULL_SILENCE_S):
                    said.append(line)
                    yield PullProgress(image=image, detail=line)
                code = await process.wait()
        except TimeoutError:
            raise self._too_slow("pull", PULL_SILENCE_S) from None
        except OSError as error:
            raise answers.not_begun(self.name, error) from None
        if code:
            raise answers.not_fetched(self.name, image, answers.last_words("\n".join(said)))
        yield PullProgress(image=image, detail="pulled", fraction=1.0, done=True)

    async def command(self, spec: ContainerSpec) -> list[str]:
        """Return the exact `run` command. Raises HostError if the spec names no image."""
        return argv.run(self.name, await self._fitted(spec), replace=True)

    async def _fitted(self, spec: ContainerSpec) -> ContainerSpec:
        """Fit a spec to docker's rootless mode. Raises HostError: no image, or an engine across nodes in that mode."""
        if not spec.image:
            raise HostError(
                f"{spec.name} has no image, and {self.name} needs one.",
                code="image_missing",
                hint="Name an image in the profile.",
            )
        if spec.inner_port is not None or not await self._is_rootless_docker():
            return spec
        if spec.workers or LABEL_HEAD in spec.labels:
            raise answers.network_unreachable()
        return argv.published(spec)

    async def _is_rootless_docker(self) -> bool:
        with suppress(HostError):  # the call that follows says why docker does not answer
            words = [self.name, "info", "--format", "{{.SecurityOptions}}"]
            return self.name == argv.DOCKER and "name=rootless" in (await self._call(words, LOOK_S)).out
        return False

    async def check_start(self, spec: ContainerSpec) -> None:
        await self._fitted(spec)
        await self._host.make_seccomp(spec)
        present = await self.inspect(spec.name)
        if present is not None and not _is_ours(present, spec):
            raise answers.name_taken(self.name, spec.name)
        if lacks := await in_thread(lambda: podman_host.lacking(self.name, spec)):
            raise lacks
        await self._host.make_mounts(spec)
        if spec.keeps_entrypoint and spec.image:
            told = await self._call(argv.entrypoint(self.name, spec.image), LOOK_S)
            if fault := answers.entrypoint_fault(spec.image, told.out, spec.argv):
                raise fault

    async def start(self, spec: ContainerSpec) -> ContainerInfo:
        """Create and start a container; one of ours with the same name is replaced, another's is left alone.

        Raises HostError: image_missing, no_gpu_device, mount_missing, command_missing, port_in_use, name_taken,
        disk_full, or runtime_failed with the program's own words. Leaves no container behind.
        """
        spec = await self._fitted(spec)
        await self._host.make_mounts(spec)
        await self._host.make_seccomp(spec)
        try:
            return await self._run(spec)
        except HostError as error:
            if error.code != "name_taken":
                raise
        await self._make_room(spec)
        return await self._run(spec)

    async def stop(self, name: str, grace_s: float, before_removal: Awaitable[None] | None = None) -> Leftovers:
        if name not in self._known:
            with suppress(HostError):  # a silent podman must not prevent a stop
                await self._inspect([name])
        left = await self._stop(name, math.ceil(grace_s), before_removal)
        self._known.pop(name, None)
        return left

    async def _stop(self, name: str, grace_s: int, before_removal: Awaitable[None] | None) -> Leftovers:
        host, info = self._host, self._known.get(name)
        members = await host.members(info)
        stopped = await self._ended(name, grace_s)
        if stopped is None:
            return await host.end(members | await host.members(info))
        killed: Births = {}
        if not stopped:
            killed = members | await host.members(info)
            await host.end(killed)
        if before_removal is not None:
            await before_removal
        try:
            await self._remove(name)
        except HostError as error:
            if left := await host.still_living(killed):
                raise ending.unkillable_error(name, left, leftovers.KILLED_S) from None
            if not killed:
                raise
            return Leftovers(unremoved=error.message)
        return await host.end(members | await host.members(info))

    async def _ended(self, name: str, grace_s: int) -> bool | None:
        """Return whether the runtime stopped the container; None if it no longer exists."""
        try:
            done = await self._call(argv.stop(self.name, name, grace_s), grace_s + LATE_S)
        except HostError as error:
            if error.code != "runtime_timeout":
                raise
            return False
        if done.code and answers.gone(done.err):
            return None
        if done.code:
            with suppress(HostError):  # podman neither stops nor removes a paused container
                await self._call(argv.unpause(self.name, name), UNPAUSE_S)
        return not done.code

    async def _remove(self, name: str) -> None:
        """Remove the container by force; a missing one is success."""
        done = await self._call(argv.remove(self.name, name), REMOVE_S)
        if done.code and not answers.gone(done.err):
            raise answers.failed(self.name, "rm", done.err, done.code)

    async def inspect(self, name: str) -> ContainerInfo | None:
        found = await self._inspect([name])
        return found[0] if found else None

    async def containers(self, labels: Mapping[str, str]) -> list[ContainerInfo]:
        """List containers with these labels. Two calls: only `inspect` has the same fields in all versions."""
        done = await self._call(argv.ids(self.name, labels), LOOK_S)
        if done.code:
            raise answers.failed(self.name, "ps", done.err, done.code)
        ids = done.out.split()
        return await self._inspect(ids) if ids else []

    async def settle(self, owner: str) -> Leftovers:
        await self._host.settle_commands(self.name, owner)
        found = await self._host.engines_of(owner)
        # each by its name: an incomplete list must not cost a living engine its processes
        here = await self._inspect([each.removeprefix(engine_mark(owner, "")) for each in found]) if found else []
        held = {engine_mark(owner, info.name) for info in here if info.state is not ContainerState.EXITED}
        return await self._host.end(leftovers.processes_except(found, held))

    def logs(self, name: str, *, follow: bool, tail: int | None = None) -> AsyncIterator[str]:
        """Read lines of both streams, in the order of podman's monitor. Raises HostError(code="no_such_container")."""
        return podman_host.read_container_log(self._host.commands, self.name, name, follow=follow, tail=tail)

    async def wait(self, name: str) -> int:
        """Wait for the container's end; return its exit code, or -1 if it was removed before."""
        known = self._known.get(name)
        ended = known is not None and self._host.is_own and await ending.has_ended(known)
        try:
            done = await self._call(argv.wait(self.name, name, soon=ended), ENDED_S if ended else None)
        except HostError:
            self._known.pop(name, None)  # perhaps started again by hand: our knowledge is outdated
            raise
        if done.code and answers.gone(done.err):
            return UNKNOWN_EXIT
        code = answers.exit_code(done.out)
        if done.code or code is None:
            raise answers.failed(self.name, "wait", done.err, done.code)
        return code

    async def pids(self, name: str) -> set[int]:
        known = self._known.get(name)
        if known and self._host.is_own and (seen := await ending.pids_of(known.id)):
            return seen
        done = await self._call(argv.top(self.name, name), LOOK_S)
        if done.code and not answers.not_running(done.err):
            raise answers.failed(self.name, "top", done.err, done.code)
        return set() if done.code else answers.pids(done.out)

    async def _call(
        self, command: list[str], deadline_s: float | None, variables: Mapping[str, str] | None = None
    ) -> CommandResult:
        try:
            return await self._host.commands.run(command, deadline_s=deadline_s, variables=variables)
        except TimeoutError:
            raise self._too_slow(command[1], deadline_s or 0) from None
        except ValueError as error:  # a NUL in a profile's word
            raise answers.failed(self.name, command[1], str(error)) from None
        except OSError as error:
            raise answers.not_begun(self.name, error) from None

    def _too_slow(self, what: str, limit_s: float) -> HostError:
        return answers.too_slow(self.name, what, limit_s, meminfo.describe_memory() if self._host.is_own else "")

    async def _inspect(self, names: list[str]) -> list[ContainerInfo]:
        done = await self._call(argv.inspect(self.name, names), LOOK_S)
        if done.code and not answers.gone(done.err):
            raise answers.failed(self.name, "inspect", done.err, done.code)
        try:
            found = answers.containers(done.out)
        except ValueError:
            raise answers.failed(self.name, "inspect", "its answer is not JSON") from None
        self._known.update({info.name: info for info in found})
        return found

    async def _make_room(self, spec: ContainerSpec) -> None:
        present = await self.inspect(spec.name)
        if present is None:
            return
        if not _is_ours(present, spec):
            raise answers.name_taken(self.name, spec.name)
        await self._remove(spec.name)

    async def _run(self, spec: ContainerSpec) -> ContainerInfo:
        made = False
        try:
            done = await self._call(argv.run(self.name, spec, replace=False), START_S, self._host.variables(spec))
            if done.code:
                raise answers.start_failed(self.name, spec, done)
            made = True
            return await self._just_started(spec, done.out)
        except HostError as error:
            if error.code != "name_taken":  # half made, or running unknown to us after podman fell silent
                await self._clear(spec, made=made)
            raise

    async def _clear(self, spec: ContainerSpec, *, made: bool) -> None:
        """Remove the container of a failed start; if the runtime fails, end its processes directly."""
        try:
            await (self._remove(spec.name) if made else self._make_room(spec))
        except HostError:  # not reported: only the first reason can be fixed
            if own := spec.env.get(ENV_MARK):
                await self._host.end(await self._host.processes("of", own))

    async def _just_started(self, spec: ContainerSpec, printed: str) -> ContainerInfo:
        id_ = answers.container_id(printed)
        info = await ending.just_started(spec, id_) if id_ and self._host.is_own else None
        if info is None:
            info = await self.inspect(spec.name)
        if info is None:
            raise answers.failed(self.name, "run", "the container was gone at once")
        self._known[spec.name] = info
        return info


def _is_ours(present: ContainerInfo, spec: ContainerSpec) -> bool:
    return LABEL_PROFILE in present.labels and present.labels.get(LABEL_OWNER) == spec.labels.get(LABEL_OWNER)
