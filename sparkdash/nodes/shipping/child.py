"""Commands of a copy over ssh connections of their own, with their progress and their end. Blocking."""

import math
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from sparkdash.domain.images import CopyKind, CopyProgress, CopyStep
from sparkdash.domain.node import Node
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult
from sparkdash.host.hub_download import DownloadMeter, Stopped
from sparkdash.host.runtime import node_unknown
from sparkdash.nodes import node_file
from sparkdash.nodes.ssh import ssh_command, ssh_errors
from sparkdash.nodes.ssh.connection import socket_folder, with_our_life, write_known_hosts
from sparkdash.units import size

PROBE_S = 2.0
PROBED_FOR_S = 30.0
RESUMES = "What arrived of the weights is kept there: the same command goes on where this one ended."


def registered_node(name: str) -> Node:
    for node in node_file.read_nodes(node_file.nodes_file()):
        if node.name == name:
            return node
    raise node_unknown(name)


class SshAccess:
    """Command lines towards nodes. `fast_address` returns a node's address on the fast link, None while unknown."""

    def __init__(
        self, fast_address: Callable[[str], str | None], find: Callable[[str], Node] = registered_node
    ) -> None:
        self._fast_address = fast_address
        self._find = find
        self._chosen: dict[str, tuple[float, str | None]] = {}

    def command(self, node: str, argv: Sequence[str]) -> Sequence[str]:
        """Return the local argv that runs `argv` on the node. Raises HostError."""
        shell, _ = self.rsync_shell(node)
        return [*shell, "--", self._find(node).ssh, ssh_command.remote(argv)]

    def rsync_shell(self, node: str) -> tuple[list[str], str]:
        """Return ssh without its host for rsync's `-e`, and the host as rsync takes it. Raises HostError."""
        found = self._find(node)
        known_hosts = write_known_hosts(socket_folder(), found)
        user, at, host = found.ssh.rpartition("@")
        return ssh_command.transfer(
            found, known_hosts, self.address(node)
        ), f"{user}{at}[{host}]" if ":" in host else found.ssh

    def address(self, node: str) -> str | None:
        """Return the address on the fast link, where sshd answers there; None: the address for ssh is used.

        Blocks for up to PROBE_S.
        """
        at, chosen = self._chosen.get(node, (float("-inf"), None))
        if time.monotonic() - at > PROBED_FOR_S:
            found = self._find(node)
            wanted = found.address or self._fast_address(node)
            chosen = wanted if wanted and _answers(wanted, found.port) else None
            self._chosen[node] = (time.monotonic(), chosen)
        return chosen

    def hf_home(self, node: str) -> str:
        return self._find(node).hf_home or "~/.cache/huggingface"

    def refusal(self, node: str, words: str) -> HostError | None:
        """Return the error for a node that may not be used, by ssh's complaint; None for a link that broke."""
        error = ssh_errors.connection_error(self._find(node), words)
        return error if error.code in ssh_errors.REFUSALS else None

    def checked(self, node: str, what: str, done: CommandResult) -> CommandResult:
        """Return the result of a command on the node. Raises HostError if ssh itself failed: node_unreachable, …"""
        if done.code == ssh_errors.FAILED and ssh_command.OWN_255 not in done.err:
            raise self.lost(node, what, ssh_errors.last_words(done.err))
        return done

    def lost(self, node: str, what: str, words: str) -> HostError:
        """Make the error of a connection that broke, or of a node that may not be used, by ssh's last words."""
        return self.refusal(node, words) or HostError(
            f"The connection to {node} broke while {what} was copied: {words.rstrip('.')}.",
            code="node_unreachable",
            hint=RESUMES,
        )


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), PROBE_S):
            return True
    except OSError:
        return False


LOOK_S = 0.1
_TAIL = 4096
_PIECE = 1 << 20


class CopyMeter:
    """Bytes and child processes of one item's copy, step by step; counted by its thread, read by the reporting one."""

    def __init__(self, kind: CopyKind, name: str, node: str) -> None:
        self._kind, self._name, self._node = kind, name, node
        self._over = threading.Event()
        self._step = CopyStep.CHECK
        self._total = self._counted = 0
        self._bytes = DownloadMeter(0, 0)
        self._children: set[subprocess.Popen[bytes]] = set()

    def begin(self, step: CopyStep, total: int = 0, missing: int | None = None) -> None:
        """Begin a step of `total` bytes, of which `missing` are to come; None: all of them. Raises Stopped."""
        self.pause(0.0)
        self._step, self._total, self._counted = step, total, 0
        self._bytes = DownloadMeter(total, total if missing is None else missing)

    def reach(self, count: int) -> None:
        grown, self._counted = count - self._counted, count
        self._bytes.add(max(0, grown), grown)

    def pause(self, seconds: float) -> None:
        """Wait, for `stop` at most. Raises Stopped after it."""
        if self._over.wait(seconds):
            raise Stopped

    def stop(self) -> None:
        """End the copy from another thread: its child processes are killed."""
        self._over.set()
        for child in tuple(self._children):
            _kill(child)

    @contextmanager
    def child(self, argv: Sequence[str], **pipes: int | IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program for the length of the block. Raises Stopped."""
        self.pause(0.0)
        process = subprocess.Popen(with_our_life(argv), start_new_session=True, **pipes)  # type: ignore[call-overload]
        self._children.add(process)
        try:
            yield process
        finally:
            self._children.discard(process)
            if process.poll() is None:
                _kill(process)
                process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(BrokenPipeError):
                    if pipe is not None:
                        pipe.close()

    def now(self) -> CopyProgress:
        seen = self._bytes.now()
        return CopyProgress(
            kind=self._kind,
            name=self._name,
            node=self._node,
            step=self._step,
            came_bytes=seen.came_bytes,
            total_bytes=self._total,
            bytes_per_s=seen.bytes_per_s,
            eta_s=seen.eta_s,
        )

    def end(self) -> CopyProgress:
        return self.now().replace(came_bytes=self._total, done=True)


def run_watched(
    argv: Sequence[str],
    meter: CopyMeter,
    look: Callable[[str], object] = lambda _: None,
    *,
    stdin: bytes = b"",
    deadline_s: float = math.inf,
) -> CommandResult:
    """Run a command; `look` is called with the end of its output again and again meanwhile.

    Raises:
        Stopped; TimeoutError after `deadline_s`.
    """
    until = time.monotonic() + deadline_s
    with (
        memory(stdin) as given,
        memory() as out,
        memory() as err,
        meter.child(argv, stdin=given, stdout=out, stderr=err) as process,
    ):
        code = None
        while code is None:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(LOOK_S)
            meter.pause(0.0)
            look(text_of(out, _TAIL))
            if code is None and time.monotonic() > until:
                raise TimeoutError
        return CommandResult(code, text_of(out), text_of(err))


def run_piped(source: Sequence[str], sink: Sequence[str], meter: CopyMeter) -> tuple[CommandResult, CommandResult]:
    """Send the output of one command into another and count its bytes; return both results. Raises Stopped."""
    with (
        memory() as said,
        memory() as out,
        memory() as err,
        meter.child(source, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said) as first,
        meter.child(sink, stdin=subprocess.PIPE, stdout=out, stderr=err) as second,
    ):
        _pump(first, second, meter)
        second.wait()
        if first.stdout:
            first.stdout.close()  # a source whose reader has ended ends too
        first.wait()
        meter.pause(0.0)
        return (
            CommandResult(first.returncode, "", text_of(said)),
            CommandResult(second.returncode, text_of(out), text_of(err)),
        )


def _pump(first: subprocess.Popen[bytes], second: subprocess.Popen[bytes], meter: CopyMeter) -> None:
    assert first.stdout is not None  # noqa: S101 - pipes as asked for
    assert second.stdin is not None  # noqa: S101
    count = 0
    with suppress(BrokenPipeError):
        while piece := os.read(first.stdout.fileno(), _PIECE):
            left = memoryview(piece)
            while left:
                left = left[os.write(second.stdin.fileno(), left) :]
            count += len(piece)
            meter.reach(count)
    meter.begin(CopyStep.LOAD)
    with suppress(BrokenPipeError):
        second.stdin.close()


def disk_full(node: str, place: str, needs: int, free: int) -> HostError:
    return HostError(
        f"{size(needs)} are to be written to {place} on {node}, and its disk has {size(free)} free.",
        code="disk_full",
        hint=f"Free {size(max(0, needs - free))} there, and run it again.",
    )


def memory(content: bytes = b"") -> IO[bytes]:
    file = os.fdopen(os.memfd_create("copy"), "w+b", buffering=0)
    file.write(content)
    file.seek(0)
    return file


def text_of(file: IO[bytes], tail: int = 1 << 24) -> str:
    """Return the end of a file that another process writes."""
    start = max(0, os.fstat(file.fileno()).st_size - tail)
    return os.pread(file.fileno(), tail, start).decode("utf-8", "replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
