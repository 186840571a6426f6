"""`sparkdash serve` that dies by SIGKILL in the middle of a swap: `python doomed.py phase SOUTH WARM 0.1` when the swap to
that profile has been in that phase for so long, `python doomed.py podman SOUTH run 0.1` when that command on its
container has run for so long.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from sparkdash.bus import Bus
from sparkdash.cli.main import main
from sparkdash.host import command

what, profile, when, delay = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
publish, begin = Bus.publish, command.begin_child


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_soon() -> None:
    """Now, or when what has just begun is under way."""
    if delay:
        asyncio.get_running_loop().call_later(delay, die)
    else:
        die()


def published(self: Bus, fact: Any) -> Any:
    result = publish(self, fact)
    if what == "phase" and fact.kind == "swap" and (fact.swap.target, fact.swap.phase) == (profile, when):
        die_soon()
    return result


async def begun(argv: list[str], **more: Any) -> Any:
    """Begin a program, and see whether it is time: on a busy box it exists long after it was called."""
    process = await begin(argv, **more)
    if what == "podman" and argv[1] == when and f"sparkdash-{profile}" in argv:
        die_soon()
    return process


Bus.publish = published  # type: ignore[method-assign]
command.begin_child = begun
sys.argv = ["sparkdash", "serve", "--port", "0"]
main()
