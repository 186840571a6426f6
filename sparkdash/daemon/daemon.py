"""Parts that a daemon is made of, and the state of a running daemon."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkdash import listen
from sparkdash.bus import Bus
from sparkdash.catalog import Catalog
from sparkdash.daemon.config_file import SettingsReader
from sparkdash.daemon.listeners import Handover
from sparkdash.daemon.other_nodes import OtherNodes
from sparkdash.daemon.profile_files import ProfileFiles
from sparkdash.domain.memory import Holding, MemoryAccount
from sparkdash.domain.node import LOCAL
from sparkdash.host.box import HostReader
from sparkdash.host.memory.guard import MemoryGuard
from sparkdash.host.memory.helper import MemoryHelper
from sparkdash.host.runtime import Nodes, Runtime
from sparkdash.prometheus import MetricsExporter
from sparkdash.settings import Settings
from sparkdash.store import Store
from sparkdash.supervisor import Supervisor
from sparkdash.telemetry import Collector
from sparkdash.units import GIB
from sparkdash.upstream import Upstream


@dataclass(frozen=True)
class Parts:
    """Differences between the real daemon and the demo."""

    settings: Settings
    load_settings: Callable[[], Settings]
    """Reads the settings again, after an edit of config.toml; the demo's lies in a folder of its own."""
    runtime: Runtime
    reader: HostReader
    nodes: Nodes | None = None
    """Boxes that engines may run on; None: this box alone."""
    profile_folders: Callable[[], Sequence[Path]] = tuple
    """Folders of profiles, later ones overriding earlier ones; watched for edits."""
    connects_nodes: bool = False
    """Whether engines may run on the nodes of the registry; the demo's nodes are simulated."""
    load_catalog: Callable[[], Catalog] | None = None
    account: Callable[[], Awaitable[MemoryAccount]] | None = None
    """Account of simulated memory; None: this box's own memory is accounted for."""
    guard: MemoryGuard | None = None
    """Guard of the box's memory; None in the demo, whose memory is simulated."""
    memory_helper: MemoryHelper | None = None
    """Frees and compacts memory as root, where it is installed; None in the demo."""
    simulated: bool = False
    host: str = field(default_factory=socket.gethostname)
    handover: Handover = field(default_factory=Handover)
    """Sockets inherited from a parent process."""
    extra_tasks: "tuple[Callable[[Daemon], Awaitable[None]], ...]" = ()
    """Further tasks that live as long as the daemon, such as the demo's traffic."""
    before_stop: "Callable[[Daemon], Awaitable[None]] | None" = None
    """Awaited when the daemon is told to end, before any client is refused: the demo's own clients hang up."""
    stop_engines: bool = False
    """End the engines with the daemon (the demo); otherwise the next daemon adopts them."""


SHARED_S = 1.0
"""Age up to which an account serves the next caller."""
RECENT_S = 60.0
"""Age up to which an account still names the largest holders."""
LARGE = GIB
"""Least memory of a holder that is named."""


class MemoryAccounts:
    """Cache of the last account. `look` makes one; `monotonic` is the clock."""

    def __init__(self, look: Callable[[], Awaitable[MemoryAccount]], monotonic: Callable[[], float]) -> None:
        self._look = look
        self._monotonic = monotonic
        self._task: asyncio.Task[MemoryAccount] | None = None
        self._last: tuple[float, MemoryAccount] | None = None

    async def now(self) -> MemoryAccount:
        """Return an account that is at most SHARED_S old. Raises whatever `look` raises."""
        if (known := self._within(SHARED_S)) is not None:
            return known
        if self._task is None:
            self._task = asyncio.create_task(self._take(), name="memory account")
            self._task.add_done_callback(self._over)
        return await asyncio.shield(self._task)  # one caller's cancellation must not end it for the others

    def foreign(self) -> tuple[Holding, ...]:
        """Large holders that are not ours, largest first, without waiting; none without a recent account."""
        known = self._within(RECENT_S)
        return () if known is None else known.foreign(LARGE)

    def _within(self, seconds: float) -> MemoryAccount | None:
        if self._last is None or self._monotonic() - self._last[0] > seconds:
            return None
        return self._last[1]

    async def _take(self) -> MemoryAccount:
        found = await self._look()
        self._last = self._monotonic(), found
        return found

    def _over(self, task: asyncio.Task[MemoryAccount]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn when no caller is left


@dataclass
class Daemon:
    """Running daemon with all its parts; `build` sets those that are made of others."""

    parts: Parts
    url: str
    """Root URL, without /v1."""
    files: ProfileFiles
    bus: Bus
    upstream: Upstream
    store: Store
    others: OtherNodes | None = None
    """Other nodes; None where there can be none."""
    accounts: MemoryAccounts = field(init=False)
    supervisor: Supervisor = field(init=False)
    collector: Collector = field(init=False)
    server: listen.Server = field(init=False)
    rereading: SettingsReader = field(init=False)
    exporter: MetricsExporter = field(init=False)
    reload_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while files are read, so that two readings never overtake each other."""
    restarts: dict[str, int] = field(default_factory=dict)
    background_tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Work that a client asked for and nobody awaits; cancelled when the daemon ends."""

    @property
    def node_names(self) -> tuple[str, ...]:
        nodes = self.others.nodes if self.others else self.parts.nodes
        return tuple(nodes.names) if nodes else (LOCAL,)

    def in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self.background_tasks.add(task)
        task.add_done_callback(self.background_tasks.discard)
