"""What the doing half of the room is handed: outside things, each behind its contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sparkdash.domain.need import Need
from sparkdash.domain.profile import EngineKind, Profile
from sparkdash.engines.adapter import EngineAdapter
from sparkdash.host.reader import HostReader
from sparkdash.host.runtime import Runtime
from sparkdash.settings import Settings
from sparkdash.supervisor.books import Books
from sparkdash.supervisor.clock import Clock
from sparkdash.supervisor.logbook import Logbook
from sparkdash.supervisor.ports import Ports
from sparkdash.supervisor.wards import Wards
from sparkdash.upstream import Upstream


@dataclass(frozen=True, slots=True)
class Tools:
    """One for the supervisor's life."""

    runtime: Runtime
    upstream: Upstream
    reader: HostReader
    settings: Settings
    clock: Clock
    books: Books
    logbook: Logbook
    ports: Ports
    wards: Wards
    owner: str
    """The value of our containers' owner label."""
    adapter: Callable[[EngineKind], EngineAdapter]
    needs: Callable[[Profile], Need]
    """What a launch takes; answered at once."""
