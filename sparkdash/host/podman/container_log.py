"""Log of a container, as podman or docker prints it.

Owns: the one command that reads it, and which of its lines is the program's own complaint. Must not know the meaning of
lines.
"""

from __future__ import annotations

from asyncio.subprocess import STDOUT
from collections.abc import AsyncIterator

from sparkdash.errors import HostError
from sparkdash.host.command import child_running, stdout_lines
from sparkdash.host.podman import answers, argv


async def read_container_log(program: str, name: str, *, follow: bool, tail: int | None) -> AsyncIterator[str]:
    """Read lines of both streams, in the order in which the program's monitor met them.

    Nobody checks first whether the container is there: one line of complaint and an exit code show that it is not.

    Raises:
        HostError: no_such_container, or runtime_missing.
    """
    complaint, count = "", 0
    try:
        async with child_running(argv.logs(program, name, follow=follow, tail=tail), stderr=STDOUT) as process:
            async for line in stdout_lines(process):
                count += 1
                if count == 1 and answers.gone(line):
                    complaint = line  # the program's own, unless more follows or it ends well
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
