"""What the daemon is made of: what it is handed, and what lives while it serves.

Owns: nothing but the two lists. Must not know how anything of it is made, nor in which order it ends.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sparkdash import listen
from sparkdash.bus import Bus
from sparkdash.catalog import Catalog
from sparkdash.daemon.profile_files import ProfileFiles
from sparkdash.handover import Handover
from sparkdash.host.memory_guard.guard import Guard
from sparkdash.host.memory_helper.helper import MemoryHelper
from sparkdash.host.reader import HostReader
from sparkdash.host.runtime import Runtime
from sparkdash.revision import Rereading
from sparkdash.settings import Settings
from sparkdash.supervisor import Supervisor
from sparkdash.telemetry import Collector


@dataclass(frozen=True)
class Parts:
    """What differs between the real daemon and the demo."""

    settings: Settings
    runtime: Runtime
    reader: HostReader
    profile_folders: Callable[[], Sequence[Path]] = tuple
    """Folders of profiles, later ones overriding earlier ones; watched for edits."""
    load_catalog: Callable[[], Catalog] | None = None
    """Makes the profiles of the demo, in place of files."""
    load_settings: Callable[[], Settings] | None = None
    """Reads the settings again, whose file is watched for edits too; the demo's come from no file."""
    guard: Guard | None = None
    """Watches the box's memory; the demo, whose memory is simulated, has none."""
    memory_helper: MemoryHelper | None = None
    """Frees and compacts the box's memory as root, where it is installed; the demo has none."""
    simulated: bool = False
    host: str = field(default_factory=socket.gethostname)
    """The box's name on the screens; the demo adds how many times faster than it says everything runs."""
    handover: Handover = field(default_factory=Handover)
    """Sockets that a parent handed to this process."""
    beside: tuple[Callable[[Daemon], Awaitable[None]], ...] = ()
    """Further tasks that live as long as the daemon: the demo's traffic."""
    leave: Callable[[Daemon], Awaitable[None]] | None = None
    """Awaited when the daemon is told to end, before anybody is refused: the demo's own clients hang up."""
    stop_engines: bool = False
    """End the engines with the daemon (the demo); otherwise the next daemon adopts them."""
    traffic: Callable[[bool], None] | None = None
    """Switches the demo's traffic; None when there is none."""
    traffic_on: bool | None = None
    """Is that traffic on at first? None when there is none."""


@dataclass
class Daemon:
    """Everything that lives while the daemon serves."""

    parts: Parts
    bus: Bus
    supervisor: Supervisor
    collector: Collector
    server: listen.Server
    url: str
    """Root URL, without /v1."""
    files: ProfileFiles
    edited: asyncio.Event
    """Set when a file may have been edited."""
    rereading: Rereading | None
    """Of the settings; the demo's come from no file."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Two readings of the files never overtake each other."""
    silent_folders: frozenset[Path] = frozenset()
    """Folders of profiles that were reported as not answering."""
    restarts: dict[str, int] = field(default_factory=dict)
    errands: set[asyncio.Task[None]] = field(default_factory=set)
    """What somebody asked for and the daemon does not wait for; ended with it."""
