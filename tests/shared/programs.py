"""Python programs of ours that tests start: forked from a process that has done the imports, which cost more than most tests.

Owns: which programs are forked, and that what a test holds of one is a `subprocess.Popen` like any other. A test that is
about the start itself (what it imports, costs or shows in /proc), or about the console script, starts it by `subprocess`.
"""

import atexit
import inspect
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

ZYGOTE = Path(__file__).with_name("zygote.py")
READ_AT_START = ("PYTHON", "LANG", "LC_", "TZ", "FORCE_COLOR", "TYPER_", "PYDANTIC_", "PSUTIL_", "OTEL_")
"""Beginnings of variables that the interpreter or a library reads as it is loaded."""


def read_at_start(env: Any) -> dict[str, str]:
    """The variables that have their effect before a program begins."""
    return {name: value for name, value in env.items() if name.startswith(READ_AT_START)}


READ = read_at_start(os.environ)
"""Before any test has set one."""
HOW = tuple(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]


class Zygote:
    """The process that forks; one for each that runs tests."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._one = Lock()
        env = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        argv = [sys.executable, "-P", str(ZYGOTE)]
        with theirs:
            self._process = subprocess.Popen(argv, env=env | READ, stdin=theirs, stdout=subprocess.DEVNULL)

    def ask(self, asked: dict[str, Any], *descriptors: int) -> int:
        with self._one:
            socket.send_fds(self._line, [json.dumps(asked).encode()], descriptors)
            answer = self._line.recv(32)
        assert answer, "the process that forks for the tests has ended"
        return int(answer)

    def end(self) -> None:
        self._line.close()
        self._process.wait()


@cache
def zygote() -> Zygote:
    """Made when first wanted, gone with us."""
    made = Zygote()
    atexit.register(made.end)
    return made


class Program(subprocess.Popen[Any]):
    """`python WORDS`, for `-m sparkdash …` or a script of the tests that is put together of the same parts.

    On Linux a fork; elsewhere, or where the environment would have the interpreter begin in another way, a start.
    It is the zygote's child and not ours: its end is seen by its pidfd, and asked of the zygote.
    """

    _end: int | None = None

    def __init__(self, words: Sequence[str], **how: Any) -> None:
        super().__init__([sys.executable, *map(str, words)], **how)

    def _execute_child(self, *given: Any) -> None:
        how = dict(zip(HOW, given, strict=True))
        ours = [how["p2cread"], how["c2pwrite"], how["errwrite"]]
        descriptors = [number if each == -1 else each for number, each in enumerate(ours)]
        env = dict(os.environ if how["env"] is None else how["env"])
        if sys.platform != "linux" or read_at_start(env) != READ:
            return super()._execute_child(*given)  # type: ignore[misc]
        folder = str(Path(how["cwd"] or ".").resolve())
        asked = {"words": how["args"][1:], "env": env, "folder": folder, "session": how["start_new_session"]}
        self.pid = zygote().ask(asked, *descriptors)
        self._child_created = True
        self._end = os.pidfd_open(self.pid)
        self._close_pipe_fds(*(how[each] for each in HOW if each[:3] in ("p2c", "c2p", "err")))  # type: ignore[attr-defined]
        return None

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._end is None:
            return super()._try_wait(flags)  # type: ignore[misc,no-any-return]
        over = select.poll()
        over.register(self._end, select.POLLIN)
        if not over.poll(0 if flags & os.WNOHANG else None):
            return 0, 0
        os.close(self._end)
        return self.pid, zygote().ask({"reap": self.pid})

    def _internal_poll(self, *given: Any, **more: Any) -> int | None:
        if self._end is None:
            return super()._internal_poll(*given, **more)  # type: ignore[misc,no-any-return]
        if self._waitpid_lock.acquire(blocking=False):  # type: ignore[attr-defined] # else another thread waits for it
            try:
                pid, status = self._try_wait(os.WNOHANG) if self.returncode is None else (0, 0)
                if pid:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def run(words: Sequence[str], *, timeout: float = 90, **how: Any) -> subprocess.CompletedProcess[Any]:
    """As subprocess.run(capture_output=True); the exit code is the caller's to look at."""
    with Program(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how) as program:
        try:
            out, err = program.communicate(timeout=timeout)
        except BaseException:
            program.kill()
            raise
    return subprocess.CompletedProcess(program.args, program.returncode, out, err)
