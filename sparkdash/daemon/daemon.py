"""Parts that a daemon is made of, and the state of a running daemon."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sparkdash import listen
from sparkdash.bus import Bus
from sparkdash.catalog import Catalog
from sparkdash.daemon.config_file import SettingsReader
from sparkdash.daemon.listeners import Handover
from sparkdash.daemon.other_nodes import OtherNodes
from sparkdash.daemon.profile_files import ProfileFiles
from sparkdash.domain.profile import SpeedUp
from sparkdash.gateway.count.counter import TokenCounter
from sparkdash.gateway.translate.translator import Translator
from sparkdash.hooks import HookDispatcher
from sparkdash.host.memory.guard import MemoryGuard
from sparkdash.host.memory.helper import MemoryHelper
from sparkdash.host.reader import HostReader
from sparkdash.host.runtime import Nodes, Runtime
from sparkdash.prometheus import MetricsExporter
from sparkdash.settings import Settings
from sparkdash.store import Store
from sparkdash.supervisor import Supervisor
from sparkdash.telemetry import Collector
from sparkdash.tracing import RequestTracer
from sparkdash.upstream import Upstream


@dataclass(frozen=True)
class Parts:
    """Differences between the real daemon and the demo."""

    settings: Settings
    runtime: Runtime
    reader: HostReader
    nodes: Nodes | None = None
    """Boxes that engines may run on; None: this box alone."""
    profile_folders: Callable[[], Sequence[Path]] = tuple
    """Folders of profiles, later ones overriding earlier ones; watched for edits."""
    connects_nodes: bool = False
    """Whether engines may run on the nodes of the registry; the demo's nodes are simulated."""
    load_catalog: Callable[[], Catalog] | None = None
    load_settings: Callable[[], Settings] | None = None
    guard: MemoryGuard | None = None
    """Guard of the box's memory; None in the demo, whose memory is simulated."""
    memory_helper: MemoryHelper | None = None
    """Frees and compacts memory as root, where it is installed; None in the demo."""
    simulated: bool = False
    host: str = field(default_factory=socket.gethostname)
    handover: Handover = field(default_factory=Handover)
    """Sockets inherited from a parent process."""
    extra_tasks: tuple[Callable[[Daemon], Awaitable[None]], ...] = ()
    """Further tasks that live as long as the daemon, such as the demo's traffic."""
    before_stop: Callable[[Daemon], Awaitable[None]] | None = None
    """Awaited when the daemon is told to end, before any client is refused: the demo's own clients hang up."""
    stop_engines: bool = False
    """End the engines with the daemon (the demo); otherwise the next daemon adopts them."""
    traffic: Callable[[bool], None] | None = None
    traffic_on: bool | None = None


class Opened(NamedTuple):
    """Parts that are closed when the daemon ends."""

    bus: Bus
    upstream: Upstream
    store: Store
    translator: Translator
    counter: TokenCounter
    tracer: RequestTracer


@dataclass
class Daemon:
    """Running daemon with all its parts."""

    parts: Parts
    bus: Bus
    supervisor: Supervisor
    collector: Collector
    server: listen.Server
    url: str
    """Root URL, without /v1."""
    files: ProfileFiles
    edited: asyncio.Event
    rereading: SettingsReader | None
    """Reads edited settings; None in the demo, whose settings come from no file."""
    hooks: HookDispatcher
    exporter: MetricsExporter
    """Counts for the page of metrics."""
    store: Store
    others: OtherNodes | None = None
    """Other nodes; None where there can be none."""
    reload_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while files are read, so that two readings never overtake each other."""
    silent_folders: frozenset[Path] = frozenset()
    """Profile folders that were reported as not answering."""
    speed_ups: dict[str, SpeedUp] = field(default_factory=dict)
    restarts: dict[str, int] = field(default_factory=dict)
    background_tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """Work that a client asked for and nobody awaits; cancelled when the daemon ends."""
