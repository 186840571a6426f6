"""Log of a container, as podman or docker prints it.

Owns: the command that reads the log, and telling the program's own complaint from the log's lines. Must not know the
meaning of lines.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from sparkdash.errors import HostError
from sparkdash.host.command import Commands, stdout_lines
from sparkdash.host.podman import answers, argv


async def read_container_log(
    commands: Commands, program: str, name: str, *, follow: bool, tail: int | None
) -> AsyncIterator[str]:
    """Read lines of both streams, in the order of the program's monitor.

    A missing container shows by a single line of complaint and an exit code, so no check comes first.

    Raises:
        HostError: no_such_container, or runtime_missing.
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
