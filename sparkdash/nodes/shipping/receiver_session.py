"""Session with the receiver on another node: its start, requests and answers, and frames of bytes.

Owns: the child process with its pipes, and what its end means. Must not know which files are sent. Blocking: used in
threads, and ended from another one by `kill`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from sparkdash.nodes.shipping import remote_files
from sparkdash.nodes.shipping.receiver import END, PING

PIPE_BYTES = 1 << 20
_LAST_WORDS = 4000
_START = """
import os, sys, types
def _read(n):
    b = b""
    while len(b) < n:
        b += os.read(0, n - len(b)) or sys.exit(0)
    return b
_m = types.ModuleType({module!r})
sys.modules[{module!r}] = _m
exec(compile(_read({files}), "remote_files", "exec"), _m.__dict__)
exec(compile(_read({receiver}), "receiver", "exec"))
"""


class LinkLost(Exception):  # noqa: N818 - the sender decides whether it is an error
    """The receiver ended without an answer: exit code and last words of the command that ran it."""

    def __init__(self, code: int | None, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


class ReceiverRefusal(Exception):  # noqa: N818 - facts for a message
    """Answer of the receiver that it could not do what it was asked."""

    def __init__(self, facts: dict[str, Any]) -> None:
        super().__init__(str(facts.get("error")))
        self.error = str(facts.get("error"))
        self.facts = facts


def _sources() -> tuple[bytes, bytes]:
    files = Path(str(remote_files.__file__))
    return files.read_bytes(), files.with_name("receiver.py").read_bytes()


def receiver_argv() -> tuple[str, ...]:
    """Return the command that runs the receiver on the other node; its program comes on standard input."""
    files, receiver = _sources()
    start = _START.format(module=remote_files.__name__, files=len(files), receiver=len(receiver))
    return ("python3", "-c", start.strip())


class ReceiverSession:
    """Running receiver. `command` is the local argv that reaches it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._words: IO[bytes] = os.fdopen(os.memfd_create("receiver"), "w+b", buffering=0)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words, start_new_session=True
        )
        assert self._process.stdin is not None  # noqa: S101 - pipes as asked for
        assert self._process.stdout is not None  # noqa: S101
        self._into = self._process.stdin.fileno()
        self._lines = self._process.stdout
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._ended = threading.Lock()
        try:
            for source in _sources():
                self._write(source)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ReceiverSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, do: str, *, hashed: Callable[[int], object] | None = None, **request: Any) -> Any:
        """Ask for one thing and return the answer. `hashed` is called with bytes as they are hashed there.

        Raises:
            LinkLost, ReceiverRefusal.
        """
        self._write((json.dumps({"do": do, **request}) + "\n").encode())
        return self.answer(hashed)

    def answer(self, hashed: Callable[[int], object] | None = None) -> Any:
        """Read the next answer."""
        while True:
            facts = self._read()
            if "ok" in facts:
                return facts["ok"]
            if "from" in facts:
                return facts["from"]
            if "hashed" in facts:
                if hashed is not None:
                    hashed(facts["hashed"])
            else:
                raise ReceiverRefusal(facts)

    def frame(self, data: memoryview) -> None:
        """Send bytes of the file under way. A receiver that has refused it raises its reason here."""
        self._write(len(data).to_bytes(4, "big"), data)

    def keep_alive(self) -> None:
        """Tell the receiver, between two frames, that the sender lives."""
        self._write(PING.to_bytes(4, "big"))

    def end_file(self, sha256: str) -> None:
        """End the file under way; returns once it is verified there and has its name."""
        self._write(END.to_bytes(4, "big") + sha256.encode())
        self.answer()

    def kill(self) -> None:
        """End the session from another thread."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    @property
    def closed(self) -> bool:
        """Whether the session is over."""
        return self._lines.closed

    def close(self) -> None:
        """End the session and its process."""
        with self._ended:
            if self.closed:
                return
            if self._process.stdin is not None:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()
            try:
                self._process.wait(timeout=2.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._lines.close()
            self._words.close()

    def _read(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            raise self._lost()
        try:
            facts = json.loads(line)
        except ValueError:
            facts = None
        if not isinstance(facts, dict):  # a login script that prints
            raise LinkLost(None, f"The node answered {line[:80]!r} in place of JSON.")
        return facts

    def _write(self, *parts: bytes | memoryview) -> None:
        left = [memoryview(part) for part in parts]
        try:
            while left:
                count = os.writev(self._into, left)
                while left and count >= len(left[0]):
                    count -= len(left.pop(0))
                if left:
                    left[0] = left[0][count:]
        except (BrokenPipeError, ValueError):
            self._last_answer()

    def _last_answer(self) -> None:
        """Raise the refusal that the receiver wrote before it ended, else LinkLost."""
        while True:
            facts = self._read()
            if "error" in facts:
                raise ReceiverRefusal(facts)

    def _lost(self) -> LinkLost:
        try:
            code: int | None = self._process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            code = None
        self._words.seek(0)
        return LinkLost(code, self._words.read()[-_LAST_WORDS:].decode("utf-8", "replace").strip())
