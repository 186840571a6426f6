"""Connection to one node: calls, streams and forwarded ports over multiplexed ssh."""

import asyncio
import atexit
import contextlib
import hashlib
import os
import shutil
import tempfile
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import NoReturn

from sparkdash import paths
from sparkdash.domain.node import Node
from sparkdash.errors import HostError
from sparkdash.host.command import CommandResult, begin_child, end_child, run_command
from sparkdash.log import LOG
from sparkdash.nodes.ssh import ssh_command, ssh_errors

LONGEST = 60
"""Longest folder: a socket's own name has 25 characters, and ssh adds 17 while it makes the socket."""


@cache
def socket_folder() -> Path:
    """Return the folder of sockets, made with access for its user alone."""
    folder = paths.runtime_dir() / "ssh"
    if len(os.fsencode(folder)) > LONGEST:
        folder = Path(tempfile.mkdtemp(prefix="sparkdash-ssh-", dir="/tmp"))  # 0700, with a random name
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return folder
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def write_known_hosts(folder: Path, node: Node) -> Path:
    """Write the file that pins the node's key, unless it is there; return its path."""
    line = f"{node.name} {node.host_key}\n".encode()
    path = folder / f"{hashlib.sha256(line).hexdigest()[:16]}.known_hosts"
    if not path.exists():
        paths.replace_file(path, line)
    return path


OPEN_S = 12.0
"""Deadline of a connection with its login. ssh itself waits ssh_command.CONNECT_S for the TCP connection."""
COMPLAINT_LINES = 40
HEAR_S = 0.5
"""Longest wait for the last words of an ended ssh; a jump host's process may hold the pipe open."""


@cache
def _ends_with_us() -> tuple[str, ...]:
    # an ssh that outlived a killed daemon would hold its port forwards and its sessions
    found = shutil.which("setpriv")
    return (found, "--pdeathsig", "KILL") if found else ()


def with_our_life(argv: Sequence[str]) -> list[str]:
    """Return the command line of a child that the kernel kills when this process is killed."""
    return [*_ends_with_us(), *argv]


class Master:
    """ssh connection of its own; `open` makes it, and its end is reported once."""

    def __init__(self, node: Node, socket: Path, known_hosts: Path, on_end: Callable[[HostError], None]) -> None:
        self.socket = socket
        self.users = 0
        """Sessions that run over the connection now, as their owner counts them."""
        self._node = node
        self._known_hosts = known_hosts
        self._on_end = on_end
        self._process: Process | None = None
        self._said: deque[str] = deque(maxlen=COMPLAINT_LINES)
        self._watch: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def alive(self) -> bool:
        return self._watch is not None and not self._watch.done()

    async def open(self) -> None:
        """Connect and log in. Raises HostError: node_unreachable, host_key_changed, node_login_refused, …"""
        self.socket.unlink(missing_ok=True)
        argv = with_our_life(ssh_command.master(self._node, self.socket, self._known_hosts))
        try:
            process = await begin_child(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        except OSError as error:
            raise ssh_errors.ssh_missing(error.strerror or str(error)) from None
        hearing = asyncio.create_task(self._read_stderr(process))
        try:
            async with asyncio.timeout(OPEN_S):
                if not await _is_ready(process):
                    await asyncio.wait((asyncio.ensure_future(process.wait()), hearing))
                    self._refuse()
        except BaseException as error:
            await end_child(process)
            hearing.cancel()
            if isinstance(error, TimeoutError):
                raise ssh_errors.unreachable(self._node, f"no login within {OPEN_S:.0f} s") from None
            raise
        self._process = process
        self._watch = asyncio.create_task(self._until_end(process, hearing), name=f"ssh {self._node.name}")

    async def close(self) -> None:
        """End the connection and all that runs over it; its end is not reported."""
        self._closing = True
        if self._process is not None:
            await end_child(self._process)
        if self._watch is not None:
            await asyncio.wait((self._watch,), timeout=ssh_command.CONNECT_S)
        self.socket.unlink(missing_ok=True)

    def _refuse(self) -> NoReturn:
        raise ssh_errors.connection_error(self._node, "\n".join(self._said))

    async def _read_stderr(self, process: Process) -> None:
        assert process.stderr is not None  # noqa: S101 - `open` makes this pipe
        with contextlib.suppress(ValueError):  # a line beyond the reader's limit
            async for line in process.stderr:
                self._said.append(line.decode("utf-8", "replace").rstrip())

    async def _until_end(self, process: Process, hearing: asyncio.Task[None]) -> None:
        try:
            await process.wait()
            await asyncio.wait((hearing,), timeout=HEAR_S)
        finally:
            hearing.cancel()
            await end_child(process)
        self.socket.unlink(missing_ok=True)
        if not self._closing:
            said = "\n".join(self._said)
            gave_up = process.returncode == ssh_errors.FAILED and not said.strip()
            self._on_end(ssh_errors.connection_error(self._node, ssh_errors.NO_ANSWER if gave_up else said))


async def _is_ready(process: Process) -> bool:
    """Read up to the line READY, past what a login script may print; False if the output ends without it."""
    assert process.stdout is not None  # noqa: S101 - `open` makes this pipe
    while line := await process.stdout.readline():
        if line.strip() == ssh_command.READY.encode():
            return True
    return False


SESSIONS = 8
"""Calls at a time over one connection, and streams at a time over another."""
FORWARD_S = 8.0
"""Deadline of an order to a master: no answer of the node is needed for it."""


class NodeConnection:
    """Connection to one node, made when first needed and again after a loss, of which `on_lost` gets the reason."""

    def __init__(
        self, node: Node, *, on_lost: Callable[[HostError], None] = lambda _: None, folder: Path | None = None
    ) -> None:
        self.node = node
        self._on_lost = on_lost
        self._folder = folder
        self._calls: Master | None = None
        self._streams: list[Master] = []
        self._opening = asyncio.Lock()
        self._opening_stream = asyncio.Lock()
        self._slots = asyncio.Semaphore(SESSIONS)
        self._forwards: dict[int, int] = {}
        self._set_up: set[int] = set()
        """Ports here that the present connection forwards."""
        self._refused: set[int] = set()
        """Ports here that could not be forwarded again; told once."""
        self._numbers = count()

    @property
    def alive(self) -> bool:
        return self._calls is not None and self._calls.alive

    async def open(self) -> None:
        """Connect if there is no connection, and set forwarded ports up again. Raises HostError."""
        await self._master()

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        stdin: bytes | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a program on the node to its end; its exit code comes through, 128 plus the signal that killed it.

        `variables` are added to its environment, by its standard input: no command line shows them.
        Raises HostError: node_timeout, node_unreachable, host_key_changed, host_key_unknown, node_login_refused,
        ssh_missing.
        """
        given = variables or {}
        command = ssh_command.remote_with_variables(argv, given) if given else ssh_command.remote(argv)
        entered = ssh_command.variable_lines(list(given.values())) + (stdin or b"")
        try:
            async with asyncio.timeout(deadline_s), self._slots:
                master = await self._master()
                line = ssh_command.call(self.node, master.socket, self._known_hosts(), command)
                done = await run_command(with_our_life(line), deadline_s=None, stdin=entered)
        except TimeoutError:
            raise ssh_errors.too_slow(self.node, " ".join(argv[:2]), deadline_s) from None
        except OSError as error:
            raise ssh_errors.ssh_missing(error.strerror or str(error)) from None
        return self.checked(done)

    def checked(self, done: CommandResult) -> CommandResult:
        """Return the result of a remote command. Raises HostError if ssh itself failed."""
        if done.code != ssh_errors.FAILED:
            return done
        said, marked, _ = done.err.rpartition(ssh_command.OWN_255)
        if not marked:
            raise ssh_errors.connection_error(self.node, done.err)
        return CommandResult(done.code, done.out, said)

    @asynccontextmanager
    async def child(self, argv: Sequence[str]) -> AsyncIterator[Process]:
        """Run a program on the node for the length of the block, with pipes; for what is followed for ever.

        The process is our ssh; its exit code is the program's, or 255. Ending it closes the program's input and
        output, and a program that reads or writes neither goes on.
        Raises HostError: the connection cannot be made.
        """
        async with self.stream(ssh_command.remote(argv)) as process:
            yield process

    @asynccontextmanager
    async def stream(self, command: str) -> AsyncIterator[Process]:
        """Run a line of the other box's shell for the length of the block, with pipes. See `child`."""
        master = await self._stream_master()
        try:
            line = ssh_command.call(self.node, master.socket, self._known_hosts(), command)
            process = await begin_child(with_our_life(line), stdin=PIPE, stdout=PIPE, stderr=PIPE)
            try:
                yield process
            finally:
                await end_child(process)
        finally:
            master.users -= 1

    async def forward(self, port: int, remote_port: int | None = None) -> None:
        """Forward 127.0.0.1:`port` here to 127.0.0.1:`remote_port` (default: the same) on the node, until cancelled.

        It is set up again each time the connection is made again.
        Raises HostError: port_in_use, or the connection cannot be made.
        """
        there = port if remote_port is None else remote_port
        master = await self._master()
        if self._forwards.get(port) == there and port in self._set_up:
            return
        await self._order(ssh_command.forward(self.node, master.socket, port, there), port)
        self._forwards[port] = there
        self._set_up.add(port)

    async def cancel_forward(self, port: int) -> None:
        there, was_set_up = self._forwards.pop(port, None), port in self._set_up
        self._set_up.discard(port)
        self._refused.discard(port)
        if there is None or not was_set_up or self._calls is None or not self._calls.alive:
            return
        with contextlib.suppress(HostError):
            await self._order(ssh_command.cancel_forward(self.node, self._calls.socket, port, there), port)

    async def close(self) -> None:
        """End the connections and what runs over them, without a word to `on_lost`."""
        masters = [*([self._calls] if self._calls else []), *self._streams]
        self._calls = None
        self._streams.clear()
        await asyncio.gather(*(master.close() for master in masters))

    async def _master(self) -> Master:
        async with self._opening:
            master = self._calls
            if master is None or not master.alive:
                master = self._new_master(self._on_lost)
                await master.open()
                self._calls = master
                self._set_up.clear()
            await self._set_up_again(master)
            return master

    async def _set_up_again(self, master: Master) -> None:
        """Forward the ports that this connection does not yet; one that another program has is tried with each call."""
        for port, there in [each for each in self._forwards.items() if each[0] not in self._set_up]:
            try:
                await self._order(ssh_command.forward(self.node, master.socket, port, there), port)
            except HostError as error:
                if port not in self._refused:
                    LOG.warning("a port is not forwarded again", node=self.node.name, why=error.message)
                self._refused.add(port)
            else:
                self._set_up.add(port)
                self._refused.discard(port)

    async def _stream_master(self) -> Master:
        """Return a connection for one more stream, counted as its user."""
        async with self._opening_stream:
            self._streams = [master for master in self._streams if master.alive]
            found = next((master for master in self._streams if master.users < SESSIONS), None)
            if found is None:
                found = self._new_master(lambda _: None)
                await found.open()
                self._streams.append(found)
            found.users += 1
            return found

    def _new_master(self, on_end: Callable[[HostError], None]) -> Master:
        name = hashlib.sha256(self.node.name.encode()).hexdigest()[:8]
        socket = self._dir() / f"{os.getpid()}-{name}-{next(self._numbers)}"
        return Master(self.node, socket, self._known_hosts(), on_end)

    def _dir(self) -> Path:
        if self._folder is None:
            self._folder = socket_folder()
        return self._folder

    def _known_hosts(self) -> Path:
        return write_known_hosts(self._dir(), self.node)

    async def _order(self, argv: list[str], port: int) -> None:
        try:
            done = await run_command(argv, deadline_s=FORWARD_S)
        except TimeoutError:
            raise ssh_errors.too_slow(self.node, "ssh -O", FORWARD_S) from None
        if done.code:
            raise HostError(
                f"The port {port} cannot be forwarded to {self.node.name}: {ssh_errors.last_words(done.err)}.",
                code="port_in_use",
                hint=f"Another program may listen there: `ss -ltnp sport = :{port}` names it.",
            )
