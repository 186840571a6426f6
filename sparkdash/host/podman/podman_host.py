"""Box that a podman runs on: its commands, and what its kernel tells of containers' processes."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparkdash.domain.container import (
    CONTAINER_PREFIX,
    LABEL_OWNER,
    ContainerInfo,
    ContainerSpec,
    Leftovers,
    engine_mark,
)
from sparkdash.errors import HostError
from sparkdash.host.command import Commands, LocalPrograms, stdout_lines
from sparkdash.host.local_weights import may_exist
from sparkdash.host.podman import answers, argv
from sparkdash.host.processes import ending, leftovers
from sparkdash.host.processes.ending import SCAN_S
from sparkdash.host.processes.leftovers import Births
from sparkdash.host.thread import in_thread
from sparkdash.paths import LARGE, read_small_file


async def read_container_log(
    commands: Commands, program: str, name: str, *, follow: bool, tail: int | None
) -> AsyncIterator[str]:
    """Read lines of both streams, in the order of the program's monitor.

    A missing container shows by a single line of complaint and an exit code, so no check comes first.

    Raises HostError: no_such_container, or runtime_missing.
    """
    complaint, count = "", 0
    try:
        async with commands.child(argv.logs(program, name, follow=follow, tail=tail)) as process:
            async for line in stdout_lines(process):
                count += 1
                if count == 1 and answers.gone(line):
                    complaint = line  # the program's own, unless more lines or success follow
                    continue
                if count == 2 and complaint:
                    yield complaint
                yield line
            code = await process.wait()
    except OSError as error:
        raise answers.not_begun(program, error) from None
    if complaint and count == 1:
        if code:
            raise HostError(f"There is no container {name}.", code="no_such_container")
        yield complaint


SETTLE_S = 30.0
"""Longest wait for commands of an earlier daemon."""


class PodmanHost:
    """Box of a podman runtime, the daemon's own: its programs, folders and processes."""

    is_own = True
    """Whether this box's kernel can be asked about memory and containers without a call."""

    def __init__(self, commands: Commands | None = None) -> None:
        self.commands: Commands = commands or LocalPrograms()

    def variables(self, spec: ContainerSpec) -> dict[str, str]:
        """Variables that `run` and `output` name without a value, for the environment of the command."""
        return argv.environment(spec)

    async def make_mounts(self, spec: ContainerSpec) -> None:
        """Make the missing folders of writable mounts; a missing read-only source is a mistake.

        Raises:
            HostError: mount_missing.
        """
        wanted = [mount.source for mount in spec.mounts if not mount.read_only and mount.source.startswith("/")]
        if wanted and (failed := await self._ask("folders", *wanted)):
            source, words = failed
            raise HostError(
                f"The folder {source} for {spec.name} cannot be made: {words}.",
                code="mount_missing",
                hint="Correct the path in the profile or config.toml, or make the folder yourself.",
            )

    async def make_seccomp(self, spec: ContainerSpec) -> None:
        """Write the seccomp profile that `spec` names. Raises HostError `mount_missing`."""
        if spec.seccomp and (failed := await self._ask("io_uring", spec.seccomp)):
            source, words = failed
            raise HostError(
                f"The seccomp profile with io_uring for {spec.name} cannot be made: {source}: {words}.",
                code="mount_missing",
                hint="It is made of podman's default: `sudo apt install containers-common`. Or remove `security`.",
            )

    async def members(self, container: ContainerInfo | None) -> Births:
        """Processes of the container, by its control group and its mark; none if the scan took too long."""
        if container is None:
            return {}
        mark = engine_mark(container.labels.get(LABEL_OWNER, ""), container.name)
        return await self.processes("of", mark, container.id)

    async def engines_of(self, owner: str) -> dict[str, Births]:
        """Living processes of every engine of this owner, by the engine's mark."""
        found = await self._ask("all", owner)
        return {mark: _births(processes) for mark, processes in found.items()}

    async def end(self, found: Births) -> Leftovers:
        """Send SIGKILL to processes that still live, and wait for their end."""
        return ending.as_leftovers(await self._ask("end", json.dumps(found))) if found else Leftovers()

    async def still_living(self, processes: Births) -> Births:
        return _births(await self._ask("living", json.dumps(processes))) if processes else {}

    async def settle_commands(self, program: str, owner: str) -> None:
        """Wait for podman commands of a killed daemon, and end a hanging `run`."""
        await self._ask("settle", program, f"{LABEL_OWNER}={owner}", CONTAINER_PREFIX, str(SETTLE_S))

    async def processes(self, *order: str) -> Births:
        """Ask for processes by an order of `leftovers`; none if the scan took too long."""
        with suppress(TimeoutError):
            return _births(await self._ask(*order, deadline_s=SCAN_S))
        return {}

    async def _ask(self, *order: str, deadline_s: float | None = None) -> Any:
        """Have `leftovers` carry out an order on the box. Raises TimeoutError after a deadline."""
        async with asyncio.timeout(deadline_s):
            return await in_thread(lambda: leftovers.carry_out(*order))


def _births(found: Mapping[Any, str]) -> Births:
    return {int(pid): birth for pid, birth in found.items()}  # JSON makes text of pids


CDI_FOLDERS = (Path("/etc/cdi"), Path("/run/cdi"))
"""Where podman looks for the devices of others."""
GPU_KIND = "nvidia.com/gpu"


def lacking(program: str, spec: ContainerSpec) -> HostError | None:
    """Find a mounted folder or a CDI device that is certainly not on this box; podman tells at the start only."""
    for mount in spec.mounts:
        if mount.read_only and mount.source.startswith("/") and not may_exist(Path(mount.source)):
            return HostError(
                f"{spec.name} mounts {mount.source}, which is not on this box.",
                code="mount_missing",
                hint="Correct the path in the profile, or put the model there.",
            )
    wanted = [device for device in spec.devices if device.startswith(GPU_KIND)]
    if program == "podman" and wanted and not any(map(_names_gpus, CDI_FOLDERS)):
        folders = ", ".join(map(str, CDI_FOLDERS))
        return HostError(
            f"{spec.name} wants the GPU ({wanted[0]}), and no CDI spec offers it (looked in {folders}).",
            code="no_gpu_device",
            hint=answers.NO_GPU_HINTS["podman"],
        )
    return None


def _names_gpus(folder: Path) -> bool:
    """Whether a file of the folder names the kind of NVIDIA's devices, or cannot be read."""
    try:
        return any(GPU_KIND.encode() in read_small_file(file, LARGE) for file in folder.glob("*.*"))
    except OSError:
        return True
