"""Listening sockets of the daemon, with their TLS files, keys and lock."""

import asyncio
import contextlib
import os
import socket
from array import array
from collections.abc import Awaitable, Callable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkdash import listen, paths
from sparkdash.domain.event import Level, Notice
from sparkdash.errors import HostError, ProfileError
from sparkdash.keyring import Keyring, keys_file
from sparkdash.log import LOG
from sparkdash.settings import Settings

MICRO = 1e-6
_NOTIFY_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@dataclass(frozen=True, slots=True)
class Notifier:
    """Address of systemd's socket and the watchdog's time; None without systemd, or without a watchdog."""

    address: str | None = None
    watchdog_s: float | None = None

    def tell(self, *words: str, descriptors: Sequence[int] = ()) -> None:
        """Send words such as "READY=1" and descriptors, in one datagram. Never fails without systemd."""
        if self.address is None:
            return
        # a leading @ is an abstract socket's NUL; never wait: a full queue is systemd's own trouble
        where = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            # not socket.send_fds, which drops the address
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
            sender.sendmsg(["\n".join(words).encode()], rights, 0, where)

    async def attend(self, stopping: Awaitable[object], status: str) -> None:
        """Send READY now, WATCHDOG from the event loop, so that a stuck loop is restarted, and STOPPING at the end."""
        self.tell("READY=1", f"STATUS={status}")
        pinging = None if self.watchdog_s is None else asyncio.ensure_future(self._ping(self.watchdog_s / 2))
        try:
            await stopping
        finally:
            if pinging is not None:
                pinging.cancel()
            self.tell("STOPPING=1")

    async def _ping(self, every_s: float) -> None:
        while True:
            self.tell("WATCHDOG=1")
            await asyncio.sleep(every_s)


def notifier_from_environment(environ: MutableMapping[str, str] = os.environ) -> Notifier:
    """Read systemd's variables and remove them, so that no child inherits them."""
    address, usec, pid = (environ.pop(name, None) for name in _NOTIFY_VARIABLES)
    ours = pid is None or pid == str(os.getpid())
    watchdog_s = int(usec) * MICRO if usec and usec.isdecimal() and ours else None
    return Notifier(address or None, watchdog_s or None)


FIRST = 3
"""First descriptor that is handed over (SD_LISTEN_FDS_START)."""
TCP, UNIX = "sparkdash-tcp", "sparkdash-unix"
"""Names of sparkdash's sockets in systemd's store."""
_VARIABLES = ("LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PID")

Named = tuple[str, socket.socket]
"""A socket, and the name that the parent gave it."""


@dataclass
class Handover:
    """Sockets that a parent handed over; none without such a parent."""

    inherited: tuple[Named, ...] = ()
    notifier: Notifier = field(default_factory=Notifier)

    @property
    def outlives(self) -> bool:
        """Whether systemd keeps the sockets open once this daemon has ended."""
        return bool(self.inherited) or self.notifier.address is not None

    def tcp(self, host: str, port: int) -> socket.socket | None:
        """Take the inherited socket of this address; None: bind one. Raises HostError `socket_mismatch`."""
        tcp = [(name, sock) for name, sock in self.inherited if sock.family in (socket.AF_INET, socket.AF_INET6)]
        hosts = {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)} if tcp else ()
        return self._take(tcp, f"{host}:{port}", lambda at: at[0] in hosts and port in (0, at[1]))

    def unix(self, path: Path) -> socket.socket | None:
        """Take the inherited unix socket of this path; None: there is none, so bind one. Raises HostError as `tcp`."""
        unix = [(name, sock) for name, sock in self.inherited if sock.family == socket.AF_UNIX]
        return self._take(unix, str(path), lambda at: at == str(path))

    def keep(self, tcp: socket.socket, unix: socket.socket) -> None:
        """Leave sockets that were bound here with systemd, which keeps as many as FileDescriptorStoreMax= allows."""
        held = [sock for _, sock in self.inherited]
        for name, sock in ((TCP, tcp), (UNIX, unix)):
            if sock not in held:
                self.notifier.tell("FDSTORE=1", f"FDNAME={name}", descriptors=(sock.fileno(),))

    def _take(self, candidates: list[Named], wanted: str, fits: Callable[[Any], bool]) -> socket.socket | None:
        found = None
        for name, sock in candidates:
            if fits(sock.getsockname()):
                found = sock
            elif name in (TCP, UNIX):
                self.notifier.tell("FDSTOREREMOVE=1", f"FDNAME={name}")
                sock.close()
            else:
                raise HostError(
                    f"The socket unit {name} listens on {_shown(sock)}, and the settings say {wanted}.",
                    code="socket_mismatch",
                    hint="ListenStream= of the unit and the settings (host, port, SPARKDASH_RUNTIME_DIR) must agree.",
                )
        return found


def inherited_sockets(notifier: Notifier, environ: MutableMapping[str, str] = os.environ) -> Handover:
    """Take the sockets that systemd handed over; no child inherits their variables. Raises HostError."""
    count, names, pid = (environ.pop(name, "") for name in _VARIABLES)
    if pid != str(os.getpid()) or not count.isdecimal():
        return Handover((), notifier)
    called = names.split(":") if names else []
    inherited = tuple(
        (called[index] if index < len(called) else "unknown", _socket(FIRST + index)) for index in range(int(count))
    )
    return Handover(inherited, notifier)


def _socket(descriptor: int) -> socket.socket:
    try:
        os.set_inheritable(descriptor, False)  # engines must not hold the port
        sock = socket.socket(fileno=descriptor)
    except OSError as error:
        raise HostError(
            f"LISTEN_FDS names descriptor {descriptor}, which is no open socket: {error.strerror}.",
            code="socket_unusable",
            hint="Unset LISTEN_FDS and LISTEN_PID, or have systemd start sparkdash.",
        ) from None
    sock.setblocking(False)
    return sock


def _shown(sock: socket.socket) -> str:
    name = sock.getsockname()
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)


@dataclass(frozen=True)
class Listeners:
    """Open sockets, and what a client needs to pass them."""

    sockets: list[socket.socket]
    url: str
    keys: Keyring
    tls: listen.Tls | None
    outlives: bool
    """Whether the sockets stay open for the next daemon."""


@contextmanager
def open_listeners(settings: Settings, handover: Handover) -> Iterator[Listeners]:
    """Bind the sockets, or take inherited ones, and lock out a second daemon. Raises SparkdashError."""
    folder, tls = paths.runtime_dir(), _tls(settings)
    keys = _keys(settings)
    with ExitStack() as held:
        # the state folder too: two daemons that differ only in the folder of their sockets would own the same engines
        places = dict.fromkeys(place.resolve() for place in (folder, paths.state_dir()))
        lock_writers = [held.enter_context(listen.hold_daemon_lock(place)) for place in places]
        tcp = handover.tcp(settings.host, settings.port) or listen.bind_tcp(settings.host, settings.port)
        unix = handover.unix(folder / listen.SOCKET_NAME) or listen.bind_unix(folder / listen.SOCKET_NAME)
        handover.keep(tcp, unix)
        url = listen.root_url(tcp, tls)
        for write_holder in lock_writers:
            write_holder(f"pid {os.getpid()}, {url}")
        try:
            yield Listeners([tcp, unix], url, keys, tls, handover.outlives)
        finally:
            if not handover.outlives:
                (folder / listen.SOCKET_NAME).unlink(missing_ok=True)


def _keys(settings: Settings) -> Keyring:
    """Read the keys. Raises ProfileError without keys beyond loopback, and for a damaged file of keys."""
    keyring = Keyring(keys_file())
    if not keyring.look() and settings.beyond_loopback:
        raise ProfileError(
            f"sparkdash would serve everybody who can reach {settings.host}: there are no keys yet.",
            code="keys_needed",
            hint="Make one with `sparkdash keys add NAME`, or stay on 127.0.0.1 and use `ssh -L` from elsewhere.",
        )
    if settings.beyond_loopback and settings.tls_cert is None:
        LOG.warning("keys and prompts cross the network in clear text", host=settings.host, set="tls_cert and tls_key")
    return keyring


def _tls(settings: Settings) -> listen.Tls | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    tls = listen.Tls(settings.tls_cert.expanduser(), settings.tls_key.expanduser())
    tls.check()
    return tls


def publish_notice(publish: Callable[[Notice], object], most: int) -> None:
    """Publish a notice that the limit of connections is met, and log it."""
    LOG.warning("the limit of connections is met", most=most)
    text = (
        f"{most} connections are open, as many as the limit of open files allows: "
        "idle ones are closed for new clients, which are refused where there is none. "
        "Raise the limit: `LimitNOFILE=` of the service, or `ulimit -n` before `sparkdash serve`."
    )
    publish(Notice(level=Level.WARNING, code="connections_full", text=text))
