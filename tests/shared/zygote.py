"""A process that has imported sparkdash once, and forks for each program that a test wants; programs.py is its one client.

Owns: what a fork needs to be as a program that was started: its own environment, folder, descriptors, signals and
`__main__`. Must not know which tests want what. Run as `python -P zygote.py`, its stdin is the line to the client.

What differs from a start: `ps` shows this file's name, /proc/PID/environ this process's environment.
"""

import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

ASKED_BYTES = 1 << 20
"""Longest request: an environment, most of all."""
LEFT_OUT = ("sparkdash.tui",)
"""The screens and the processes beside the gateway have imports of their own, which a daemon must not have."""
LATE = (
    "encodings.idna", "httpcore", "pydantic.v1", "sqlite3",
)  # fmt: skip
"""Modules that are imported in the middle of something."""


def load() -> None:
    """Import what programs import, and see that a fork would find nothing half done."""
    import sparkdash

    for found in pkgutil.walk_packages(sparkdash.__path__, "sparkdash."):
        if not found.name.startswith(LEFT_OUT) and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    for name in LATE:
        importlib.import_module(name)
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()  # its objects are nobody's garbage, and a collector that leaves them alone copies no pages


def serve(line: socket.socket) -> Callable[[], object]:
    """Answer until the client hangs up. Returns in the forks only: what such a process is to do."""
    while True:
        data, descriptors, *_ = socket.recv_fds(line, ASKED_BYTES, 3)
        if not data:
            sys.exit()
        asked = json.loads(data)
        if reaped := asked.get("reap"):
            line.send(str(os.waitpid(reaped, 0)[1]).encode())
        elif pid := os.fork():
            for each in descriptors:
                os.close(each)
            line.send(str(pid).encode())
        else:
            line.detach()  # its descriptor is the program's stdin from now on
            return become(asked, descriptors)


def become(asked: dict[str, Any], descriptors: list[int]) -> Callable[[], object]:
    """Make this fork what `python WORDS` would be by now; returns its main program."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if asked["session"]:
        os.setsid()
    for number, each in enumerate(descriptors):
        os.dup2(each, number)
    os.closerange(3, 1 << 16)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr] # the streams are as they were begun, on a pipe
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["env"])
    words: list[str] = asked["words"]
    sys.orig_argv = [sys.executable, *words]
    if words[0] == "-m":
        sys.path.insert(0, asked["folder"])
        sys.argv = words[1:]
        return lambda: runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    sys.path.insert(0, str(Path(words[0]).parent))
    sys.argv = words
    return lambda: runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests to handle
    load()
    program = serve(socket.socket(fileno=0))
    program()
