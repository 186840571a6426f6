"""Commands of a copy that take minutes, such as saving an image: run to their end, or until the copy is stopped.

Owns: the child process and its output. Must not know what the commands do. Blocking.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

from sparkdash.host.command import CommandResult
from sparkdash.nodes.shipping.copy_meter import CopyMeter

LOOK_S = 0.1


def run_watched(
    argv: Sequence[str],
    meter: CopyMeter,
    look: Callable[[], object] = lambda: None,
    *,
    deadline_s: float = math.inf,
) -> CommandResult:
    """Run a command; `look` is called again and again meanwhile.

    Raises:
        Stopped, FileNotFoundError; TimeoutError after `deadline_s`.
    """
    until = time.monotonic() + deadline_s
    with _memory() as out, _memory() as err:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    code = process.wait(LOOK_S)
                    return CommandResult(code, _text(out.fileno()), _text(err.fileno()))
                if time.monotonic() > until:
                    raise TimeoutError
                meter.pause(0.0)
                look()
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _memory() -> IO[bytes]:
    return os.fdopen(os.memfd_create("command"), "w+b", buffering=0)


def _text(descriptor: int) -> str:
    return os.pread(descriptor, 1 << 24, 0).decode("utf-8", "replace")
